"""Signatures that show what most people set, and parameters in groups, most of them folded."""

import inspect
import re

from sphinx import addnodes
from sphinx.util.inspect import stringify_signature

#: what a signature shows of a long list, at most six, in their order
MOST_SET = (
    "n_parameters", "data", "hidden_layer_sizes", "module", "sample_parameters", "image_shape",
    "n_components", "groups", "likelihood", "prior_scale", "class_weight", "sampler", "max_steps",
    "random_state",
)  # fmt: skip
#: folded groups of parameters; the others, of the model and its prior, come first and open
GROUPS = {
    "Sampler and steps": (
        "sampler", "integrator", "step_size", "preconditioner", "gradient", "batch_size",
        "temperature", "init",
    ),
    "Chains and their lengths": ("n_chains", "chain_method", "n_draws", "burn_in", "thinning",
                                 "max_steps"),
    "Streams": ("total_samples", "warm_start"),
    "Computing": ("compiled", "device", "dtype", "precision", "n_jobs", "n_workers", "random_state",
                  "verbose"),
    "Files": ("storage", "checkpoint"),
}  # fmt: skip
#: the name that begins the description of a parameter
NAME = re.compile(r"    \*\*(\w+)\*\* :")
#: names of what has got a short signature
shortened = set()


def is_long(what, obj):
    """Whether this has more parameters than a reader takes in."""
    return what in ("class", "function") and len(inspect.signature(obj).parameters) > 20


def shorten(app, what, name, obj, options, signature, returns):
    """Leave the less common parameters out of a long signature; None: leave it as it is."""
    if not is_long(what, obj):
        return None
    whole = inspect.signature(obj)
    needed = [each for each in whole.parameters.values() if each.default is each.empty]
    common = [each for each in whole.parameters.values() if each.name in MOST_SET]
    shown = needed + [each for each in common if each not in needed][len(needed) - 6 :]
    short = whole.replace(parameters=shown, return_annotation=whole.empty)
    shortened.add(name)
    return stringify_signature(short, show_annotation=False), returns


def end_with_dots(app, domain, kind, content):
    """End short signatures with dots: Sphinx would not read them, and split (16, 16) in two."""
    for line in content.parent.findall(addnodes.desc_signature):
        if shortened.intersection(line["ids"]):
            for parameters in line.findall(addnodes.desc_parameterlist):
                parameters += addnodes.desc_parameter("", "...")


def fold(app, what, name, obj, options, lines):
    """Put the described parameters of a long list into the folds of their groups, in place."""
    if not is_long(what, obj) or ":Parameters:" not in lines:
        return
    start = lines.index(":Parameters:") + 1
    end = next(i for i in range(start, len(lines)) if lines[i][:1] not in ("", " "))
    parts, found = {}, None
    for line in lines[start:end]:
        named = NAME.match(line)
        found = named[1] if named else found
        parts.setdefault(found, []).append(line)
    rest = [line for key, part in parts.items() if not any(key in g for g in GROUPS.values())
            for line in part]  # fmt: skip
    for title, names in GROUPS.items():
        inside = [line for each in names for line in parts.get(each, ())]
        if inside:
            listed = ", ".join(each for each in names if each in parts)
            rest += [f"    .. dropdown:: {title}: {listed}", ""]
            rest += [f"    {line}" for line in inside]
    lines[start:end] = rest


def setup(app):
    """Connect the functions above, the last after numpydoc."""
    app.connect("autodoc-process-signature", shorten)
    app.connect("object-description-transform", end_with_dots)
    app.connect("autodoc-process-docstring", fold, priority=900)
    return {"parallel_read_safe": True}
