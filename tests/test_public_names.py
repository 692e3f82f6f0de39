"""What is public: the names that the version policy of CONTRIBUTING.md promises to keep.

A name is public if it is in the ``__all__`` of the package or of one of its public modules. The
rest of the package is private, and its file and folder names say so.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from importlib import import_module
from pathlib import Path

from _cases import cases

import skbayes_sgmcmc

ROOT = Path(skbayes_sgmcmc.__file__).parent

#: as CONTRIBUTING.md lists them
PUBLIC = {"augmentation", "diagnostics", "inspection", "models", "priors", "samplers", "schedules"}

#: neither public nor named as private: its paths are those of the classes inside pickles
ESTIMATORS = "estimators"

MODULES = ["skbayes_sgmcmc", *(f"skbayes_sgmcmc.{name}" for name in sorted(PUBLIC))]


def public(predicate):
    """Every public object that passes ``predicate``."""
    for module in map(import_module, MODULES):
        for name in module.__all__:
            found = getattr(module, name)
            if predicate(found):
                yield found


def documented(doc, *sections):
    """Names that the numpydoc ``sections`` of a docstring list, in their order."""
    names = []
    for section in sections:
        head = re.search(rf"^{section}\n-{{{len(section)}}}$", doc, re.MULTILINE)
        if head is None:
            continue
        for line in doc[head.end() + 1 :].split("\n"):
            if re.fullmatch("-{3,}", line):
                names.pop()  # the next section's title
                break
            if line and not line[0].isspace():
                names.extend(name.strip().lstrip("*") for name in line.split(" : ")[0].split(","))
    return names


def test_modules_are_public_or_named_as_private():
    found = {path.stem for path in ROOT.glob("*.py")} | {path.parent.name for path in inits()}
    open_names = {name for name in found if not name.startswith("_")}
    assert open_names == PUBLIC | {ESTIMATORS}


def inits():
    return ROOT.glob("*/__init__.py")


def test_contributing_lists_the_public_modules():
    page = ROOT.parent / "CONTRIBUTING.md"
    listed = re.search(r"these modules:\n\n((?:- `\w+`.*\n)+)", page.read_text())
    assert listed, "CONTRIBUTING.md must list them after 'these modules:'"
    assert set(re.findall(r"^- `(\w+)`", listed[1], re.MULTILINE)) == PUBLIC


@cases("module", MODULES)
def test_public_names_exist_and_are_listed_once(module):
    module = import_module(module)
    assert module.__doc__
    assert len(set(module.__all__)) == len(module.__all__)
    private = [name for name in module.__all__ if name.startswith("_") and name != "__version__"]
    assert not private
    for name in module.__all__:
        # a value has no docstring of its own: help() would show that of its type
        found = getattr(module, name)
        assert callable(found) or name == "__version__", f"{name} is neither class nor function"


@cases("found", list(public(callable)))
def test_docstrings_list_every_parameter(found):
    """In the order of the signature, so that the two can be read side by side.

    Dataclasses may list their fields as attributes.
    """
    assert found.__doc__, "has no docstring"
    if inspect.isclass(found) and issubclass(found, BaseException):
        return  # takes a message, as all exceptions do
    doc = inspect.cleandoc(found.__doc__)
    names = documented(doc, "Parameters")
    parameters = list(inspect.signature(found).parameters)
    # fields with defaults come last, whatever belongs together; those of estimators have defaults
    if dataclasses.is_dataclass(found) and not hasattr(found, "fit"):
        names += [name for name in documented(doc, "Attributes") if name in parameters]
        names, parameters = sorted(names), sorted(parameters)
    assert names == parameters


@cases("found", list(public(lambda found: hasattr(found, "fit"))))
def test_estimators_have_an_example_relatives_and_references(found):
    """Examples are run as doctests."""
    doc = inspect.cleandoc(found.__doc__)
    for section in ("See Also", "References", "Examples"):
        assert re.search(rf"^{section}\n-{{{len(section)}}}$", doc, re.MULTILINE), section
    assert ">>> " in doc


#: parameters that take whatever has rows, or whatever pyarrow opens
ANYTHING = {"X", "y", "source"}


@cases("found", [*public(inspect.isclass), skbayes_sgmcmc.sample])
def test_parameters_have_precise_types(found):
    """``Any`` would tell a type checker, and who reads the signature, nothing."""
    if inspect.isclass(found) and issubclass(found, BaseException):
        return  # takes a message, as all exceptions do
    vague = {
        parameter.name
        for parameter in inspect.signature(found).parameters.values()
        if parameter.annotation in ("Any", parameter.empty)
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    assert vague <= ANYTHING


def test_the_site_has_a_page_for_every_public_name():
    """``docs/api.md`` lists the names of every module below its ``module`` directive."""
    text = (ROOT.parent / "docs" / "api.md").read_text()
    parts = re.split(r"^\.\. module:: (\S+)$", text, flags=re.MULTILINE)[1:]
    listed = {
        module: set(re.findall(r"^   ([A-Za-z_]\w*)$", part, re.MULTILINE))
        for module, part in zip(parts[::2], parts[1::2], strict=True)
    }
    everywhere = set.union(*listed.values())
    assert set(listed) == set(MODULES)
    for name in MODULES:
        module = import_module(name)
        assert listed[name] <= set(module.__all__)
        # some names are those of two modules, and have one page
        assert set(module.__all__) - {"__version__"} <= everywhere


#: classes of the package behind a public estimator, itself among them
MOST_CLASSES = 8


def test_estimators_stand_on_few_classes():
    """What has no hooks is a function or an object that an estimator holds, not one more class.

    A reader who looks for a parameter or for what a method does looks through eight classes at
    most; it was 17. Where scikit-learn has no callbacks, a class of the package stands in for its
    own.
    """
    estimators = [kind for kind in public(inspect.isclass) if hasattr(kind, "fit")]
    assert len(estimators) >= 14
    for kind in estimators:
        own = [each for each in kind.__mro__ if each.__module__.startswith("skbayes_sgmcmc.est")]
        assert len(own) <= MOST_CLASSES, [each.__name__ for each in own]
