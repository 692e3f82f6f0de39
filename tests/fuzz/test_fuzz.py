"""Random estimators, parameters and data: the property of ``fuzz_property.py`` holds for all.

``python -m pytest -q -m fuzz --fuzz-cases 3000`` looks at as many cases, and ``--fuzz-seed`` at
others. All cases are run, and one of each kind of failure is shown: as a line that makes it again.
"""

from __future__ import annotations

import inspect
from collections import Counter
from time import perf_counter

import fuzz_data as data
import fuzz_values as values
import numpy as np
import pytest
from fuzz_property import LOG_DENSITIES, Broken, Case, check, check_sample, is_classifier, is_topics
from fuzz_truth import check_truth, truths
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

import skbayes_sgmcmc

NAMES = [
    name
    for name in skbayes_sgmcmc.__all__
    if inspect.isclass(getattr(skbayes_sgmcmc, name))
    and hasattr(getattr(skbayes_sgmcmc, name), "fit")
]
THEN = ["nothing", "nothing", "again", "stream", "warm start"]


def cases(name):
    return st.builds(
        Case,
        name=st.just(name),
        parameters=values.parameters(getattr(skbayes_sgmcmc, name)),
        rows=data.rows(counts=is_topics(name), images="CNN" in name),
        targets=data.targets(classes=is_classifier(name)),
        weights=data.weights(),
        then=st.sampled_from(THEN),
    )


def samples():
    parameters = values.parameters(skbayes_sgmcmc.sample)
    dimensions = st.fixed_dictionaries({"n_parameters": st.sampled_from([1, 2, 3])})
    return st.tuples(
        st.sampled_from([*["normal"] * 8, *LOG_DENSITIES]),
        st.builds(lambda more, drawn: more | drawn, dimensions, parameters),
    )


@pytest.fixture(autouse=True)
def _same_cases_everywhere(monkeypatch):
    """Cases depend on the seed alone.

    Hypothesis also tries constants of all modules that are loaded at the moment, which are others
    in every process and after every change.
    """
    monkeypatch.setattr(providers, "_get_local_constants", providers.Constants)


def looked_at(config, strategy, property_):
    """Run the property for its share of all cases, and fail with one case of each failure."""
    ended, broken, slowest = Counter(), {}, (0.0, None)

    @seed(config.getoption("--fuzz-seed"))
    @settings(
        max_examples=-(-config.getoption("--fuzz-cases") // (len(NAMES) + 2)),
        phases=[Phase.generate],  # all cases are run; smaller ones are not searched for
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(case):
        nonlocal slowest
        start = perf_counter()
        try:
            ended[property_(case)] += 1
        except Exception as error:
            text = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
            kind = "".join(c for c in text[:70] if not c.isdigit())
            ended["broken"] += 1
            if kind not in broken:
                broken[kind] = f"{text}\n    {case!r}"
                print(broken[kind], flush=True)  # with -s, hours before the end
        slowest = max(slowest, (perf_counter() - start, repr(case)))

    with np.printoptions(threshold=20):
        run()
    print(dict(ended), f"slowest {slowest[0]:.1f} s: {slowest[1]}")
    assert not broken, f"{ended['broken']} cases\n" + "\n".join(broken.values())


@pytest.mark.fuzz
@pytest.mark.parametrize("name", NAMES)
def test_estimators(name, request):
    looked_at(request.config, cases(name), check)


@pytest.mark.fuzz
def test_sample(request):
    looked_at(request.config, samples(), lambda case: check_sample(*case))


@pytest.mark.fuzz
def test_truth(request):
    looked_at(request.config, truths(), check_truth)


def test_every_parameter_has_values():
    """A new parameter needs a row in ``fuzz_values.py``."""
    assert not values.missing()
