"""What notebooks show of an estimator: scikit-learn's diagram, with its posterior in short."""

from __future__ import annotations

import html
from typing import Any

from sklearn.utils import estimator_html_repr

from .._draws.posterior_samples import PosteriorSamples

#: borders and text have the page's own colours, in dark pages, too
STYLE = "border-left: 3px solid {}; padding: 0.3em 0.8em; margin-top: 0.5em; max-width: 60em"
CALM, ALARM = "#2a9d8f", "#e76f51"


class PosteriorHTML:
    """Mixin of estimators: the HTML that notebooks show."""

    posterior_: PosteriorSamples
    n_steps_: int
    _mixing: tuple[tuple[float, str], tuple[float, str]] | None
    #: texts of the warnings of the latest call of ``fit`` or ``partial_fit``
    _fit_warnings: list[str]

    def _html_repr(self) -> str:
        diagram: str = estimator_html_repr(self)
        return diagram + self._posterior_html() if hasattr(self, "posterior_") else diagram

    def _sk_visual_block_(self) -> Any:
        """The estimator in scikit-learn's diagrams, also in those of pipelines and searches.

        If a version of scikit-learn has no such class, it shows its own default.
        """
        from sklearn.utils._repr_html.estimator import _VisualBlock

        caption = self._caption() if hasattr(self, "posterior_") else None
        name = type(self).__name__
        return _VisualBlock(
            "single", self, names=name, name_details=str(self), name_caption=caption
        )

    def _size(self) -> str:
        n_chains, n_draws = self.posterior_.n_chains, self.posterior_.n_draws
        return f"{n_chains} chain{'s' * (n_chains != 1)} × {n_draws:,} draws"

    def _caption(self) -> str:
        """Chains, draws, R-hat, ESS and the number of warnings, in few words."""
        parts = [self._size()]
        if self._mixing is not None:
            (r_hat, worst), (ess, least) = self._mixing
            parts += [f"R-hat {r_hat:.2f}"] * bool(worst) + [f"ESS {ess:,.0f}"] * bool(least)
        n_warnings = len(getattr(self, "_fit_warnings", []))
        return ", ".join([*parts, f"{n_warnings or 'no'} warning{'s' * (n_warnings != 1)}"])

    def _posterior_html(self) -> str:
        """Chains, draws, R-hat, ESS and warnings."""
        rows = {
            "Posterior": self._size(),
            "Steps": f"{self.n_steps_:,} of each chain",
        }
        if self._mixing is not None:
            (r_hat, worst), (ess, least) = self._mixing
            if worst:
                rows["Largest R-hat"] = f"{r_hat:.3f} ({worst})"
            if least:
                rows["Smallest effective sample size"] = f"{ess:,.0f} ({least})"
        texts = getattr(self, "_fit_warnings", [])
        rows["Warnings"] = "none" if not texts else f"{len(texts)}"
        cells = "".join(
            f'<tr><th style="text-align: left; padding-right: 1em">{html.escape(name)}</th>'
            f'<td style="text-align: left">{html.escape(text)}</td></tr>'
            for name, text in rows.items()
        )
        listed = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
        listed = f"<ul>{listed}</ul>" if texts else ""
        style = STYLE.format(ALARM if texts else CALM)
        return f'<div style="{style}"><table>{cells}</table>{listed}</div>'
