"""Code that all estimators share: the fit that runs chains, warm starts, draws, summaries."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from .._arrays import Array
from .._callbacks import CallbackSupportMixin, Progress, with_callbacks
from .._data.kept_rows import KeptRows
from .._draws.magnitude import check_magnitude, extremes
from .._draws.posterior_samples import PosteriorSamples
from .._exceptions import FIT_REMEDY, explain_full_memory, heard, not_allowed
from .._modes import usual_modes
from .._searches import search_file
from .._sklearn import BaseEstimator
from .._validation import check_int, check_unless
from . import _reading as reading
from ._fitting import Task, all_or_nothing, extremes_named, renew_attributes
from ._html import block, diagram
from ._mixing import Extreme, MustMix, check_mixing, check_order, some_r_hat
from ._named_draws import Named, attributes, joined, labels_of
from ._parameters import CHECKS, Check
from ._sense import check_run
from .tables.checks import validate_x
from .tables.columns import Columns, check_columns_stay
from .tables.encoding import PLAIN, Encoding

if TYPE_CHECKING:
    from torch import nn

    from .._engine.problem import Problem
    from .._engine.progress import Report
    from .._engine.run import Run
    from .._engine.settings import Settings
    from .._engine.streams import Part, StreamCall
    from ..diagnostics import Summary
    from ..models._protocol import Model
    from ..priors.factorised import Prior
    from ..schedules import MixingDistance, Schedule

#: of an estimator that is not fitted: nothing by any name
NONE: Mapping[Any, Any] = MappingProxyType({})


@dataclass(kw_only=True, eq=False, repr=False)
class SGMCMCEstimator(CallbackSupportMixin, BaseEstimator):
    """Base class of all estimators. Subclasses add parameters, and make the model and its data."""

    integrator: str = "auto"
    step_size: float | Schedule | Literal["auto"] = "auto"
    batch_size: int | Literal["auto"] = "auto"
    n_chains: int = 4
    n_draws: int | Literal["auto"] = "auto"
    burn_in: int | Literal["auto"] = "auto"
    thinning: int | MixingDistance | Literal["auto"] = "auto"
    max_steps: int | None = None
    temperature: float | Schedule = 1.0
    total_samples: float | None = None
    warm_start: bool = False
    compiled: bool | Literal["auto"] = "auto"
    device: str = "auto"
    dtype: str = "auto"
    checkpoint: str | os.PathLike[str] | None = None
    n_jobs: int | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0
    # each estimator has these with types and defaults of its own
    prior: Any = field(init=False)
    sampler: Any = field(init=False)
    init: Any = field(init=False)

    posterior_: PosteriorSamples = field(init=False)
    n_chains_: int = field(init=False)
    n_draws_: int = field(init=False)
    n_steps_: int = field(init=False)
    _most_steps: int = field(init=False)
    #: the state of the chains, if later ones may continue it; and what their parameters mean
    _chain_state: Any = field(default=None, init=False)
    _fitted_as: tuple[Any, ...] | None = field(default=None, init=False)
    #: parameters of a class that say what draws mean, and the values of all of them in the fit
    _read_with_draws: ClassVar[tuple[str, ...]] = ()
    _fitted_with = NONE
    #: parameters that name columns of X which are no features: one each, or columns of labels
    _column_parameters: ClassVar[tuple[str, ...]] = ()
    _label_parameters: ClassVar[tuple[str, ...]] = ()
    #: labels of the latter, by column
    _known_labels = NONE
    #: how columns of X become numbers; estimators with ``categorical_features`` learn it
    _encoding: Encoding = field(default=PLAIN, init=False)
    #: rows of a stream so far, None after ``fit``; and when its mixing was last checked
    _stream_rows: float | None = field(default=None, init=False)
    _rows_checked = 0.0
    #: the largest R-hat and the smallest ESS, each with its coordinate, if they were computed
    _mixing: tuple[Extreme, Extreme] | None = field(default=None, init=False)
    #: texts of the warnings of the latest call of ``fit`` or ``partial_fit``
    _fit_warnings: Sequence[str] = field(default=(), init=False)
    #: where the next fit leaves its warnings, if a search has made this clone
    _search_file: str | None = field(default=None, init=False)

    # what notebooks show
    _html_repr = diagram
    _sk_visual_block_ = block

    def __sklearn_clone__(self) -> Self:
        copy = super().__sklearn_clone__()
        path = self._search_file or search_file()
        if path is not None:  # the clone is fitted in a search
            copy._search_file = path
        return copy

    def __getstate__(self) -> dict[str, Any]:
        # paths become strings, because files without pickle hold no other kind of path
        state = super().__getstate__()
        paths = {k: os.fspath(v) for k, v in state.items() if isinstance(v, os.PathLike)}
        return state | paths

    def _sample(
        self,
        problem: Problem,
        settings: Settings,
        progress: Progress,
        call: StreamCall | None = None,
    ) -> Part:
        """Run the chains and set ``posterior_`` and the attributes that describe the run.

        ``call`` is what is known of a stream, if the rows are a part of one.
        """
        from .._engine.run import draw
        from .._engine.streams import Part, draw_part, remembering
        from ..models._threads import few_threads

        with few_threads(problem.model, problem.data.n_rows, settings.n_chains):
            problem = problem.bound()
        named, previous = Named(problem.model, problem.data), problem.previous

        def on_progress(report: Report) -> None:
            def fitted() -> dict[str, Any] | None:
                found = report.draws()
                if call is not None or found is None or found[0].shape[1] == 0:
                    return None  # the draws of a stream are joined at the end of the call
                ordered = self._in_order(named(found[0]), previous)
                return attributes(PosteriorSamples(ordered, found[1]), report.step)

            def figures() -> dict[str, float]:
                found = {"NLL of a row": report.nll()}
                now = fitted() if report.one_mode else None
                return found if now is None else found | {"R-hat": some_r_hat(now["posterior_"])}

            progress.show(report.step, report.n_steps, figures)
            if not report.in_workers:
                progress(report.fraction, fitted)

        if call is None:
            part = Part(run=draw(problem, settings, on_progress))
        else:
            part = draw_part(problem, settings, call, on_progress)
        run = part.run
        draws = self._in_order(named(run.draws), previous)
        posterior = PosteriorSamples(draws, run.weights, run.statistics)
        if call is not None:
            posterior, kept = joined(self, posterior, part, named, previous, settings.n_draws)
            part = replace(part, run=replace(run, state=remembering(run.state, kept=kept)))
        vars(self).update(attributes(posterior, run.n_steps))
        self._most_steps = run.plan.end
        self.step_size_ = run.step_size
        self.batch_size_ = run.batch_size
        self._takes_all_rows = run.recipe.minibatches.full
        self._automatic_step = run.recipe.automatic_step
        self.compiled_, self.not_compiled_ = run.accelerators
        self.device_ = problem.device
        self.sampling_threshold_ = run.threshold_trace() if call is None else None
        if heard():
            with few_threads(run.target.model, run.target.data.n_rows, len(run.draws)):
                self._check_run(run)
        return part

    #: for messages, of the last run's steps
    _takes_all_rows = False
    _automatic_step = "step_size='auto'"

    #: checks of parameters that are others than those of the same name elsewhere
    _checks: ClassVar[dict[str, Check]] = {}

    def _check(self) -> Settings:
        """Check every parameter before any work starts: each alone, then together."""
        checks = CHECKS | self._checks
        for name, value in self.get_params(deep=False).items():
            if name in checks:
                checks[name](name, value)
        settings = self._settings()
        self._check_together(settings)
        return settings

    def _check_together(self, settings: Settings) -> None:
        """Raise ``ValueError`` if parameters that are allowed alone are not allowed together."""
        check_columns_stay(self)

    def _settings(self) -> Settings:
        from .._engine.settings import Settings

        return Settings.of(self)

    def _samplers(self) -> tuple[str, ...]:
        """Names that ``sampler`` may be, which its error lists."""
        return ("sgld", "psgld", "sghmc", "sgnht", "msgnht")

    def _in_order(self, draws: dict[str, Array], previous: Any) -> dict[str, Array]:
        """New draws, with components reordered to match each other and the earlier draws."""
        return draws

    def _check_stream(self) -> None:
        reading.check_stream(self)
        if self.checkpoint is not None:
            raise not_allowed(
                f"checkpoint={self.checkpoint!r} is not allowed in partial_fit: give "
                "checkpoint=None, and save the estimator between calls instead."
            )

    def _prior(self) -> Prior:
        from ..priors.factorised import PRIORS

        return PRIORS[self.prior]() if isinstance(self.prior, str) else self.prior

    # every call of fit and partial_fit ------------------------------------------------------------

    @usual_modes()
    @all_or_nothing
    @with_callbacks
    def _fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, stream: bool = False, **of_y: Any
    ) -> None:
        """Check, encode, sample and judge. ``of_y`` are what a part of a stream says of y."""
        task = self._task(X, y, sample_weight, stream=stream, **of_y)
        with extremes_named(self):
            self._run(task)
        self._judge(task)

    def _task(
        self, X: Any, y: Any, sample_weight: Any, *, stream: bool = False, **of_y: Any
    ) -> Task:
        """Check parameters and data, and make the model."""
        settings = self._check()
        if stream:
            self._check_stream()
        first = not (stream and hasattr(self, "posterior_"))
        rows = self._encoded(X, y, sample_weight, first=first, stream=stream, **of_y)
        go_on = not first if stream else self.warm_start and self._continues()
        previous = self._chain_state if go_on else None
        self._fitted_as, self._fitted_with = self._meaning(), reading.parameters(self)
        model = self._make_model(rows, first=first if stream else previous is None)
        # parts of a stream must fit, which draw_part checks
        if not stream and previous and not previous.fits(self.n_chains, model.n_parameters):
            model, previous = self._make_model(rows, first=True), None
        return Task(model, rows, settings, previous, stream, {"X": X, "y": y})

    def _encoded(
        self, X: Any, y: Any, sample_weight: Any, *, first: bool, stream: bool
    ) -> KeptRows:
        """Checked rows, with targets as numbers and weights.

        ``first``: whether columns and labels are learned from these rows.
        """
        raise NotImplementedError

    def _meaning(self) -> tuple[Any, ...]:
        """What the parameters of chains mean: later chains continue only if it is the same."""
        raise NotImplementedError

    def _continues(self) -> bool:
        """Whether parameters of the earlier chains, if there are any, mean the same as now."""
        return self._fitted_as == self._meaning()

    def _make_model(self, rows: KeptRows, *, first: bool) -> Model:
        """The model of such rows. ``first``: whether it learns units and the like from them."""
        raise NotImplementedError

    def _judge(self, task: Task) -> None:
        """Warn of chains that have not mixed, and of fits that are plainly nonsense."""
        if not task.stream:
            self._rows_checked = 0.0  # of a stream that ends here
            self._check_mixing(task)
            self._check_sense(task.rows)
            return
        rows = self._stream_rows or 0.0  # they are judged each time that they have doubled
        if self.n_draws_ >= 4 and not self._rows_checked <= rows < 2.0 * self._rows_checked:
            self._rows_checked = rows
            self._check_mixing(task)

    def _check_mixing(self, task: Task) -> None:
        """Warn if the chains have not mixed."""
        if self.n_draws_ >= 4:
            must = self._must_mix(task)
            self._mixing = check_mixing(self, must, self.posterior_.weights)

    def _must_mix(self, task: Task) -> MustMix:
        """What the chains of a fit must agree on."""
        raise NotImplementedError

    def _check_run(self, run: Run) -> None:
        """Warn if a run has not sampled what it was meant to."""
        check_run(self, run)

    def _sparse(self) -> str | bool:
        """The sparse format that ``validate_data`` accepts, or False."""
        return "csr" if self.__sklearn_tags__().input_tags.sparse else False

    def _validate_x(self, X: Any) -> Any:
        """X, checked for predictions."""
        reading.check_fitted(self)
        return self._validate_rows(X)

    def _validate_rows(self, X: Any) -> Any:
        """X, checked to have the same columns as the rows of the fit."""
        return validate_x(self, X)

    def _predictor(self) -> Any:
        """``_predict_block`` for many blocks of one call; shared preparations are done once."""
        return self._predict_block

    def _predict_block(self, draws: Any, x: Any) -> Array:
        """Predictions of some pooled draws, of shape (draws, rows, outputs)."""
        raise NotImplementedError

    @property
    def _columns(self) -> Columns:
        return Columns.of(self)

    def _inputs(self, X: Any) -> Any:
        """X as the model sees it."""
        return X

    def _targets(self, target: Array) -> Array:
        """Targets as the model sees them."""
        return target

    @explain_full_memory(FIT_REMEDY)
    def _run(self, task: Task) -> None:
        """Sample the posterior of a model given rows, which may be one part of a stream."""
        from .._engine.streams import StreamRows, remembering

        new, rows, previous, joined, call = task.rows, task.rows, task.previous, None, None
        if task.stream:
            joined = StreamRows.of(rows, previous, task.model.n_parameters)
            rows, previous = joined.rows, joined.previous
        problem = replace(self._problem(task.model, rows, task.settings), previous=previous)
        progress = Progress(self, task.data)
        if joined is not None:
            complete = self._is_complete(rows.target, after_others=previous is not None)
            call = joined.call(problem.data, complete=complete)
            total = call.seen if self.total_samples is None else float(self.total_samples)
            problem = replace(problem, data=replace(problem.data, total=total))
        part = self._sample(problem, task.settings, progress, call)
        state = part.run.state
        if joined is not None and not part.settled:
            kept = joined.kept()
            state = remembering(state, rows=kept)
            check_order(self, joined, kept)
        self._chain_state = state if task.stream or self.warm_start else None
        self._mixing = None
        self._stream_rows = None if call is None else call.seen
        with np.errstate(all="ignore"):  # what is not finite is an error
            renew_attributes(self)
            self._check_finite(new.x)
        progress.close()

    def _is_complete(self, target: Any, *, after_others: bool) -> bool:
        """Whether targets of every kind have come in a stream, in these rows or before them."""
        return True

    def _problem(
        self, model: Any, rows: KeptRows, settings: Settings, inputs: Any = None
    ) -> Problem:
        """What a run samples, given the model, its rows and, if they are known, its inputs."""
        from .._engine.devices import run_device
        from .._engine.problem import Problem

        device, dtype = run_device(settings, model, rows.x.shape[0])
        y = None if rows.target is None else self._targets(rows.target)
        inputs = self._inputs(rows.x) if inputs is None else inputs
        data = model.make_data(inputs, y, rows.weight, dtype, device)
        return Problem(model, data, dtype, device)

    def _check_finite(self, X: Any) -> None:
        """Raise if means or sds of the draws, or predictions of some rows, are not finite."""
        chosen, largest = extremes(self.posterior_)
        try:
            found = self._outcomes(np.array(chosen), X[:5])
            good = all(np.isfinite(each).all() for each in found)
        except ValueError:
            good = False
        check_magnitude(largest if good else math.inf)

    def _outcomes(self, draws: Array, x: Any) -> list[Array]:
        """What some pooled draws predict for rows: arrays that must be finite."""
        return []

    def _check_sense(self, rows: KeptRows) -> None:
        """Warn if the fit is plainly nonsense, for estimators that can tell."""

    def _set_attributes(self) -> None:
        """Set the fitted attributes that summarise ``posterior_``."""

    def sample_posterior(
        self, n_samples: int | None = None, random_state: Any = None
    ) -> dict[str, Array]:
        """Return draws of the posterior, pooled over the chains.

        Regressors add what ``summary`` shows in other units, such as "noise" to "log_noise".

        Parameters
        ----------
        n_samples : int or None, default=None
            Number of draws, chosen with replacement in proportion to their weights. None: every
            draw once, in arrays that are read-only.
        random_state : int, RandomState or None, default=None
            Seed for the choice of draws.

        Returns
        -------
        dict of str to array of shape ``(n_samples, *shape)``
        """
        reading.check_fitted(self)
        chosen = self.posterior_.chosen(n_samples, random_state)
        found: dict[str, Array] = {}
        for posterior in (self.posterior_, self._in_units()):
            names = [name for name in posterior.draws if name not in found]
            found |= {name: posterior.select(name, chosen) for name in names}
        return found

    def summary(self, coverage: float = 0.9) -> Summary:
        """Summarise every parameter by its mean, sd, central interval, ESS, R-hat and MCSE.

        Parameters
        ----------
        coverage : float, default=0.9
            Probability of the central interval.

        Returns
        -------
        Summary
            A dict of columns that prints as a table. ``to_frame()`` converts it to a DataFrame.
        """
        from ..diagnostics import summary

        reading.check_fitted(self)
        return summary(self._in_units(), labels=self._labels(), coverage=coverage)

    def _in_units(self) -> PosteriorSamples:
        """The draws in the units in which summaries show them."""
        return self.posterior_

    def _ratio_title(self) -> str:
        """What the exponentials of coefficients are."""
        return "ratio"

    def _labels(self) -> dict[str, list[str]]:
        """Names of the flattened coordinates of each block of draws."""
        return {name: labels_of(name, axes) for name, axes in self._axes().items()}

    def _axes(self) -> dict[str, dict[str, list[Any]]]:
        """Names of the axes of each block of draws, with the labels along each axis."""
        return {}

    def _in_rows(self, y: Any) -> Any:
        """Targets with an item for each row, whatever ``fit`` takes."""
        return y

    def _log_lik_blocks(self, X: Any, y: Any) -> Iterator[Array]:
        """Blocks (draws, rows) of log p(row | draw), in the order of the rows."""
        raise not_allowed(
            f"X and y are not allowed with {type(self).__name__}, because the log likelihood of "
            "rows is not known: give neither."
        )

    def to_arviz(self, X: Any = None, y: Any = None, **options: Any) -> Any:
        """The posterior as arviz's own object; see :func:`skbayes_sgmcmc.to_arviz`."""
        from .._export.arviz import to_arviz

        return to_arviz(self, X, y, **options)

    def _torch_module(self, n_draws: int | None = None) -> nn.Module:
        """Predictions as a torch module that averages ``n_draws`` of the pooled draws."""
        reading.check_fitted(self)
        self._encoding.check_plain("an export")
        check_unless(None, check_int, "n_draws", n_draws, high=self.posterior_.n_pooled)
        return self._ensemble(*self.posterior_.spaced(n_draws))

    def _ensemble(self, chosen: Array, weights: Array) -> nn.Module:
        """A torch module that averages the predictions of some pooled draws."""
        raise not_allowed(
            f"estimator={type(self).__name__} is not allowed: only classifiers and regressors can "
            "be exported."
        )
