"""Generalised linear models at their default settings against long NUTS runs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from skbayes_sgmcmc import BayesianGLMRegressor

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "benchmarks"))
from _glm_sets import SETS

pytestmark = pytest.mark.statistical

REFERENCES = Path(__file__).parent / "data" / "reference_glm.npz"
#: of the default tier; the second has more columns than rows, and groups of the third have one row
QUICK = ("linnerud", "wide_counts", "seeds_plates")


def distances(name, **parameters):
    """Errors of means in sds, ratios of sds, and the largest R-hat of a fit."""
    with np.load(REFERENCES) as file:
        found = {key.split("/")[1]: file[key] for key in file if key.startswith(f"{name}/")}
    assert found["max_rhat"] < 1.01
    kind, columns = SETS[name]
    reg = BayesianGLMRegressor(likelihood=kind, random_state=0, **columns, **parameters)
    reg.fit(found["X"], found["y"])
    errors, ratios = [], []
    for key, mean in found.items():
        if not key.endswith("_mean"):
            continue
        part = key.removesuffix("_mean")
        draws = reg.posterior_.pooled(part.removeprefix("log_") if _is_scale(part) else part)
        draws = np.log(draws) if _is_scale(part) else draws
        sd = found[f"{part}_sd"].ravel()
        draws = draws.reshape(len(draws), -1)
        errors.append(np.abs(draws.mean(0) - mean.ravel()) / sd)
        ratios.append(draws.std(0) / sd)
    return np.concatenate(errors), np.concatenate(ratios), reg.summary()["r_hat"].max()


def _is_scale(part):
    return part == "log_scale" or part.startswith("log_sd_")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in SETS]
)
def test_posterior_is_that_of_nuts(name):
    """Every coefficient, effect, scale and parameter of the likelihood.

    Bounds of the package's promise: means within 0.15 sd, sds within 10%, R-hat at most 1.02. The
    effective sample sizes are above 2,000, so Monte Carlo errors are 0.03 sd and 2% on both sides.
    """
    errors, ratios, r_hat = distances(name)
    assert errors.max() <= 0.15
    assert np.abs(ratios - 1.0).max() <= 0.10
    assert r_hat <= 1.02
