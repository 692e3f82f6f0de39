"""Many quick cases in one test, which reports all that fail."""

from __future__ import annotations

import functools
import inspect

import numpy as np
import pytest

#: fixtures that a case would leave to the next one
LEFT = {"capfd", "capsys", "recwarn", "replaced"}


def named(value):
    """As ``repr``; of a function, the line that it is from: those of a list are all lambdas."""
    code = getattr(value, "__code__", None)
    return f"{code.co_name} of line {code.co_firstlineno}" if code else repr(value)


def cases(names, values):
    """As ``pytest.mark.parametrize``, in one test: for cases of a small fraction of a second.

    Each case has a ``monkeypatch`` and a ``tmp_path`` of its own; a case that skips itself leaves
    out itself only.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    given = [(value,) if len(names) == 1 else tuple(value) for value in values]
    assert given and all(len(value) == len(names) for value in given)
    assert not any(isinstance(part, type(pytest.param())) for value in given for part in value)

    def decorated(test):
        signature = inspect.signature(test)
        fixtures = [value for name, value in signature.parameters.items() if name not in names]
        assert len(fixtures) + len(names) == len(signature.parameters)
        assert not LEFT.intersection(value.name for value in fixtures), test.__name__

        @functools.wraps(test)
        def all_cases(**shared):
            failed, skipped = [], []
            for number, value in enumerate(given):
                with pytest.MonkeyPatch.context() as patch:
                    np.random.seed(0)  # noqa: NPY002 - as for every test, see conftest.py
                    own = {"monkeypatch": patch} if "monkeypatch" in shared else {}
                    if "tmp_path" in shared:
                        own["tmp_path"] = shared["tmp_path"] / str(number)
                        own["tmp_path"].mkdir()
                    try:
                        test(**shared | own | dict(zip(names, value, strict=True)))
                    except pytest.skip.Exception as reason:
                        skipped.append(reason)
                    except (Exception, BaseExceptionGroup, pytest.fail.Exception) as error:
                        error.add_note(f"with {', '.join(names)} = {', '.join(map(named, value))}")
                        failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(given)} cases", failed)
            if len(skipped) == len(given):
                raise skipped[0]

        del all_cases.__wrapped__
        all_cases.__signature__ = signature.replace(parameters=fixtures)
        return all_cases

    return decorated
