"""Descriptions of parameters and attributes that several estimators share, for their docstrings.

In a docstring, a line such as ``{checkpoint}`` stands for such an entry, with its name and type.
Lines below it go on with what is the estimator's own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from textwrap import indent
from typing import TypeVar

Kind = TypeVar("Kind", bound=type)


def described(known: Mapping[str, str]) -> Callable[[Kind], Kind]:
    """Put shared entries, by their names, in the docstring of a class.

    Its signature has the order of the docstring: parameters of base classes would come first.
    """

    def complete(kind: Kind) -> Kind:
        def entry(line: re.Match[str]) -> str:
            return indent(known[line[2]], line[1])

        def place(parameter: inspect.Parameter) -> int:
            found = re.search(rf"\b{parameter.name} : ", kind.__doc__ or "")
            return found.start() if found else -1  # self

        if kind.__doc__:  # there is none with python -OO
            kind.__doc__ = re.sub(r"^( *)\{([\w, ]+)\}$", entry, kind.__doc__, flags=re.M)
            init = vars(kind)["__init__"]
            given = inspect.signature(init)
            parameters = sorted(given.parameters.values(), key=place)
            init.__signature__ = given.replace(parameters=parameters)
        return kind

    return complete


def _entries(section: str) -> dict[str, str]:
    """Entries of a section of a docstring, by their names."""
    found = re.findall(r"^\w.*(?:\n .*)+", section, flags=re.M)
    return {text.partition(" : ")[0]: text for text in found}


#: of any estimator that samples
SHARED = _entries(r"""
class_weight : dict, "balanced" or None, default=None
    Weight of each class, as in scikit-learn: the exponent of the likelihood of its rows.
    ``partial_fit`` refuses "balanced", since it does not know later rows.
categorical_features : "from_dtype", array of str, int or bool, or None, default="from_dtype"
    Columns of X that hold categories, by their names or indices, or a boolean for each column.
    "from_dtype": those columns of tables that are categories, strings, or objects with strings.
    Each category becomes an indicator, and gaps are allowed in all columns of tables (see
    :doc:`tables of mixed columns </tables>`).
integrator : str, default="auto"
    Integrator that discretises the sampler's dynamics: "euler", "leimkuhler_matthews" (SGLD),
    "splitting", "baoab", "aboba" (second-order samplers) or "metropolis" (MALA). "auto": the
    sampler's most accurate integrator, or "euler" if ``step_size`` is a number.
n_draws : "auto" or int, default="auto"
    Number of draws kept per chain. "auto": 100, or fewer if they would need more than 1 GiB.
max_steps : int or None, default=None
    Bound on the steps of each chain in ``fit``, which makes a fit shorter. Lengths that are
    "auto" shrink in proportion; given ones that take more steps are refused. None: no bound.
    ``partial_fit`` takes one pass over its rows, and ignores ``burn_in``, ``thinning`` and
    ``max_steps``.
temperature : float or Schedule, default=1.0
    Temperature T of the target exp(-U/T): 1 samples the posterior, 0 is an optimiser.
total_samples : float or None, default=None
    Number of rows N of the whole stream in ``partial_fit``. None: the rows seen so far.
warm_start : bool, default=False
    If True, the next ``fit`` continues from the last state of the chains.
device : str, default="auto"
    Torch device, such as "cpu" or "cuda". "auto" is CUDA for fits that are large enough to be
    faster there, otherwise the CPU; see ``device_``.
dtype : {"auto", "float32", "float64"}, default="auto"
    Precision of the sampling. "auto": float64 on a CPU for up to 100,000 parameters, otherwise
    float32.
storage : Storage or None, default=None
    Precision and location of the stored draws, such as ``Storage(dtype="bfloat16",
    dir="draws")``. None: in memory, in the precision of the sampling.
checkpoint : path or None, default=None
    File that lets an interrupted fit resume if it is called again with the same data and
    parameters. On a CPU, the draws are then bit-identical to those of an uninterrupted fit. The
    file is kept after the fit. With ``n_jobs``, each group of chains has a file of its own:
    "fit.0-1.npz" beside "fit.npz" for the chains 0 and 1.
n_jobs : int or None, default=None
    Number of groups of chains that run in parallel through joblib, in processes that take
    seconds to start: fits of a minute or more gain by it. None: a single group.
random_state : int, RandomState or None, default=None
    Seed. Chain c has the same random numbers for every value of ``n_chains`` and ``n_jobs``.
verbose : int, default=0
    If positive, print steps and the time left. R-hat or the loss comes with them.
    Scikit-learn's callbacks work, too.
n_chains_, n_draws_ : int
    Number of chains in ``posterior_`` and number of draws of each chain.
n_steps_ : int
    Number of steps of each chain in the last call of ``fit`` or ``partial_fit``.
step_size_ : float
    Step size eta of the last step.
batch_size_ : int
    Number of rows in a minibatch.
compiled_ : tuple of str
    Names of the accelerators used in the last call, such as ("fused_steps",); () if none.
not_compiled_ : dict of str to str
    Why each of the other accelerators was not used, by name; {} with ``compiled=False``.
sampling_threshold_ : dict or None
    Noise at up to 50 steps. "step": their numbers. "noise_ratio": alpha_t, the ratio of the
    gradient noise to the injected noise in the worst direction; chains sample the posterior
    where it is far below 1. "gradient_noise" (smallest and largest coordinate) and
    "injected_noise": variances, for
    :class:`~skbayes_sgmcmc.inspection.NoisePhaseDisplay`. None after ``partial_fit``, with
    batch norms, and if the sampler injects no noise of this kind.
device_ : str
    Device of the last call: as given, or what "auto" has chosen.
n_features_in_ : int
    Number of features seen in ``fit``.
feature_names_in_ : array of shape ``(n_features_in_,)``
    Names of the features, if X had string column names.
""")

#: of networks, in the place of the former
NETWORK = _entries(r"""
activation : {"relu", "tanh", "logistic"}, default="relu"
    Activation of the hidden layers.
prune : None, float or Pruning, default=None
    Pruning of the smallest weights during sampling: the final fraction of zeros, or a
    :class:`Pruning` that also sets the schedule and the layers. None: no pruning.
augment : callable or None, default=None
    Data augmentation: ``augment(x, rng)`` returns randomly changed inputs of a minibatch, with
    the same shape, ``(..., *shape of a row)``, and device. See
    :mod:`skbayes_sgmcmc.augmentation`.
step_size : "auto", float or Schedule, default="auto"
    Step size eta, which multiplies the gradient of the mean potential, like a learning rate.
    "auto": 0.002 for pSGLD; with the other samplers, each chain finds its own in the burn-in.
n_chains : int, default=4
    Number of chains. Each chain has its own starting point. Predictions average over all
    chains.
chain_method : {"auto", "vectorized", "sequential"}, default="auto"
    Whether the chains take each step together ("vectorized") or one after the other
    ("sequential"). The draws are the same up to rounding. "auto": together, as one batched
    computation.
burn_in : "auto" or int, default="auto"
    Number of steps before the first draw in ``fit``. "auto": ten passes over the rows, but at
    least 3000 steps (MCLMC with minibatches: 7000); half as many as the draws take if
    ``step_size`` is a number.
thinning : "auto", int or MixingDistance, default="auto"
    Number of steps between two draws of a chain in ``fit``. "auto": such that the draws take as
    many steps as ``burn_in="auto"`` would; a tenth of a pass, at most 100, if ``step_size`` is
    a number.
max_steps : int or None, default=None
    Bound on the steps of each chain in ``fit``, which makes a fit shorter. Lengths that are
    "auto" shrink in proportion; given ones that take more steps are refused. The descents that
    chains of MCLMC and MALA start with compute at most a tenth as many gradients of rows. None:
    no bound. ``partial_fit`` takes one pass over its rows, and ignores ``burn_in``,
    ``thinning`` and ``max_steps``.
init : "auto", "random", "map" or array, default="auto"
    Starting points of the chains. "random": normal weights with He's scaling. "map": as
    "random", and the first half of the burn-in runs at temperature 0, as an optimiser. An array
    is broadcast to (n_chains, n_parameters). "auto": "map" with ``step_size="auto"``, otherwise
    "random".
validation_fraction : float, default=0.15
    Share of the rows, 2,000 at most, that stop the descent that chains of MCLMC and MALA start
    with: it ends when their likelihood no longer improves. Every chain has its own, and samples
    the posterior of all rows afterwards. With fewer than 20 different rows, and other samplers
    or starts, there are none.
device : str, default="auto"
    Torch device, such as "cpu" or "cuda". "auto" is CUDA for fits and for predictions that are
    large enough to be faster there, otherwise the CPU; see ``device_``. Predictions use a given
    device, too, or the CPU if it is missing when a fitted model is loaded.
precision : {"full", "bfloat16"}, default="full"
    Precision of the network's matrix products in gradients. "full" is that of ``dtype``.
    "bfloat16" is faster on some hardware; parameters, noise, updates, likelihood, draws and
    predictions are then in float32.
classes_ : array of shape (n_classes,), or list of arrays
    Class labels; with several targets, a list with those of each, or the numbers of the columns
    of y if all labels are 0 and 1.
""")

#: of linear models
LINEAR = _entries(r"""
step_size : "auto", float or Schedule, default="auto"
    Step size eta, which multiplies the gradient of the mean potential, like a learning rate.
    "auto": a fixed step for each sampler, in coordinates where the posterior is close to a
    standard normal. With ``sampler="psgld"``, "auto" raises an error if the features are so
    correlated that a diagonal preconditioner would need very long runs.
gradient : str, default="auto"
    Estimator of the gradient: "minibatch", or "control_variates" centred at the MAP (Baker et
    al. 2019), for ``fit`` only, or "linear_control_variates", which are fitted to the Gaussian
    approximation, with importance-sampled rows. "auto": "linear_control_variates" with a matrix
    preconditioner, otherwise "control_variates"; "minibatch" if ``step_size`` is a number.
batch_size : "auto" or int, default="auto"
    Number of rows in a minibatch, at most all rows. "auto": all rows of a small data set,
    otherwise as many as keep the gradient noise small; 100 if ``step_size`` is a number.
burn_in : "auto" or int, default="auto"
    Number of steps before the first draw in ``fit``. "auto": about as many steps as the chains
    need to forget their starting points.
thinning : "auto", int or MixingDistance, default="auto"
    Number of steps between two draws of a chain in ``fit``. "auto": at most 20, depending on
    the step size; a tenth of a pass, at most 100, if ``step_size`` is a number.
init : "auto", "random", "map", "gaussian" or array, default="auto"
    Starting points of the chains. "random": near zero. "map": the maximum of the posterior.
    "gaussian": draws of the Gaussian approximation of the posterior. An array is broadcast to
    (n_chains, n_parameters). "auto": "gaussian" with a matrix preconditioner, otherwise "map";
    "random" if ``step_size`` is a number.
""")
