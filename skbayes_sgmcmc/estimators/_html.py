"""What notebooks show of an estimator: scikit-learn's diagram, with its posterior in short."""

from __future__ import annotations

import html
from typing import Any

from sklearn.utils import estimator_html_repr

#: borders and text have the page's own colours, in dark pages, too
STYLE = "border-left: 3px solid {}; padding: 0.3em 0.8em; margin-top: 0.5em; max-width: 60em"
CALM, ALARM = "#2a9d8f", "#e76f51"


def diagram(estimator: Any) -> str:
    """The HTML of an estimator that stands alone."""
    own: str = estimator_html_repr(estimator)
    return own + posterior_html(estimator) if hasattr(estimator, "posterior_") else own


def block(estimator: Any) -> Any:
    """The estimator in scikit-learn's diagrams, also in those of pipelines and searches.

    If a version of scikit-learn has no such class, it shows its own default.
    """
    from sklearn.utils._repr_html.estimator import _VisualBlock

    caption = _caption(estimator) if hasattr(estimator, "posterior_") else None
    name = type(estimator).__name__
    return _VisualBlock(
        "single", estimator, names=name, name_details=str(estimator), name_caption=caption
    )


def posterior_html(estimator: Any) -> str:
    """Chains, draws, R-hat, ESS and warnings."""
    rows = {"Posterior": _size(estimator), "Steps": f"{estimator.n_steps_:,} of each chain"}
    if estimator._mixing is not None:
        (r_hat, worst), (ess, least) = estimator._mixing
        if worst:
            rows["R-hat"] = f"{r_hat:.3f} ({worst})"
        if least:
            rows["Effective sample size"] = f"{ess:,.0f} ({least})"
    texts = estimator._fit_warnings
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


def _caption(estimator: Any) -> str:
    """Chains, draws, R-hat, ESS and the number of warnings, in few words."""
    parts = [_size(estimator)]
    if estimator._mixing is not None:
        (r_hat, worst), (ess, least) = estimator._mixing
        parts += [f"R-hat {r_hat:.2f}"] * bool(worst) + [f"ESS {ess:,.0f}"] * bool(least)
    n_warnings = len(estimator._fit_warnings)
    return ", ".join([*parts, f"{n_warnings or 'no'} warning{'s' * (n_warnings != 1)}"])


def _size(estimator: Any) -> str:
    n_chains, n_draws = estimator.posterior_.n_chains, estimator.posterior_.n_draws
    return f"{n_chains} chain{'s' * (n_chains != 1)} × {n_draws:,} draws"
