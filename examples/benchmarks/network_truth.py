"""Predictions of eight small networks next to long NUTS runs of the same posteriors.

    SKBAYES_DATA=folder OMP_NUM_THREADS=1 python examples/benchmarks/network_truth.py

The references are in tests/data/reference_networks.npz, which
tests/data/make_reference_networks.py makes. ``--quick`` takes two cases and short chains.
"""

import warnings

import numpy as np
from _common import SHORT_CHAINS, finished, markdown_table, parse_args, write_results
from _network_truth import (
    CASES,
    Moments,
    Reference,
    differences,
    estimator,
    load,
    predictions,
    stored,
)

from skbayes_sgmcmc import PosteriorSamples, SamplingError
from skbayes_sgmcmc.diagnostics import r_hat

QUICK = ("toy", "wine")
#: "default" leaves the sampler to the estimator
SAMPLERS = ("default", "mclmc", "psgld", "sghmc", "msgnht", "sgld")
#: the reference's chains agree if the R-hat of its predictions is at most this
AGREE = 1.05
MEAN_BOUND, SD_BOUNDS = 0.25, (0.8, 1.25)
ENDS = """
The default on breast_cancer [ends after 1,450 of 6,000 steps](early_ends.md). With seeds 1 and 2
the ratio of sds is 1.14 and 1.10, and with all steps it is 1.06 to 1.18 (seeds 0 to 2).
"""
BODY = """
Functions are compared, because weights cannot be: the regression function f at up to 50 held-out
rows, or the probabilities of the classes. NUTS (numpyro, float64, four chains, half of them from an
optimised start and half from a random one, diagonal mass matrix, at most 255 leapfrog steps)
samples the density of the estimator, which was written a second time for it; learned scales are
integrated out. Of two targets, f of both are compared, or the probabilities of the classes of both.
Ours are estimators with that prior and noise and all other parameters at their
defaults except the sampler: four chains and all rows in every step.

## The networks

{cases}

{missing}

R-hat: median and largest over the held-out predictions of the reference. Floor: the difference of
two pairs of the reference's chains, each with one optimised and one random start.

## From our own starts

Mean: the median over rows of |mean - reference mean| / reference sd. Sd: the median of sd /
reference sd. R-hat: the median over rows, of ours. NLL: negative log likelihood of the held-out
rows (two columns of classes: the sum of theirs).

{own}

Targets: mean at most 0.25, sd within 0.8 to 1.25. {verdict}

{ends}

## In the same mode

Every chain of ours starts at the last position of one chain of the reference and is compared with
that chain alone. It has no descent, and the noise of each row from its first step. Floor: the
second half of each chain of the reference next to its first half.

{same}

{verdict_same}
"""


def fitted(name, parameters):
    X, y, X_new, y_new = load(name)
    model = estimator(name, random_state=0, batch_size=len(X), **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    if CASES[name].noise is None:
        p = model.predict_proba(X_new)
        targets = zip(p, y_new.T, strict=True) if isinstance(p, list) else [(p, y_new)]
        given = [p[np.arange(len(y)), y] for p, y in targets]
        nll = -float(np.log(np.maximum(given, 1e-300)).sum(0).mean())
    else:
        nll = -float(model.predict_log_density(X_new, y_new).mean())
    return model, predictions(model, X_new), nll


def measure(name, parameters, reference, same):
    """Numbers of one fit, next to the whole reference or, if ``same``, chain by chain.

    Without a chain that diverged, there is no telling which of the others belongs to which: the
    number of those that are left is then all there is.
    """
    if same:
        parameters = parameters | {"init": reference.last}
    try:
        model, found, nll = fitted(name, parameters)
    except SamplingError:
        return {"left": 0}
    if same and len(found) < len(reference.last):
        return {"left": len(found)}
    ours, theirs = Moments.of(found), reference.chains
    if not same:
        ours, theirs = ours.pooled(), theirs.pooled()
    mean, sd = differences(ours, theirs)
    between = r_hat(PosteriorSamples({"prediction": found}), "prediction")
    between = between[np.isfinite(between)]
    return {
        "mean": mean,
        "sd": sd,
        "r_hat": float(np.median(between)),
        "nll": nll,
        "step": float(model.step_size_),
        "steps": int(model.n_steps_),
    }


def floors(reference):
    """Differences between pairs of the reference's chains, and between halves of each chain."""
    pairs = [reference.chains.some([first, first + 2]).pooled() for first in (0, 1)]
    return differences(*pairs), differences(*reference.halves)


def row(label, numbers):
    if "left" in numbers:
        return [label, "diverged", f"{numbers['left']} chains left", "", "", ""]
    shown = [f"{numbers['mean']:.2f}", f"{numbers['sd']:.2f}"]
    return [label, *shown, f"{numbers['r_hat']:.2f}", f"{numbers['nll']:.3f}",
            f"{numbers['step']:.2g}"]  # fmt: skip


def missed(numbers):
    low, high = SD_BOUNDS
    return "left" in numbers or not (numbers["mean"] <= MEAN_BOUND and low <= numbers["sd"] <= high)


def listed(runs):
    return ", ".join(f"{sampler} on {name}" for name, sampler in runs)


def verdict(failures, absent, n_runs):
    text = f"Met by {n_runs - len(failures)} of {n_runs} runs"
    text += f"; missed by {listed(failures)}." if failures else "."
    return text + (f" Still to be run: {listed(absent)}." if absent else "")


def compare(args, names, references, *, same):
    """Rows of a table, the runs that missed, those that are not there, and the number of runs."""
    rows, failures, absent, n_runs = [], [], [], 0
    for name in names:
        reference, floor = references[name], floors(references[name])[same]
        nll = f"{reference.nll[0]:.3f}"
        rows.append([f"**{name}**, floor", f"{floor[0]:.2f}", f"{floor[1]:.2f}",
                     f"{reference.r_hat[0]:.2f}", nll, ""])  # fmt: skip
        for sampler in SAMPLERS[same:]:  # the default is one of the samplers
            parameters = {} if sampler == "default" else {"sampler": sampler}
            if args.short:
                parameters |= SHORT_CHAINS | {"n_chains": len(reference.last)}
            run = finished(
                args,
                f"{name}-{sampler}-{'same' if same else 'own'}",
                lambda at=(name, parameters, reference, same): measure(*at),
                case=name,
                sampler=sampler,
                same=same,
            )
            if run is None:
                absent.append((name, sampler))
                continue
            n_runs += 1
            rows.append(row(sampler, run))
            if missed(run):
                failures.append((name, sampler))
            print(rows[-1], flush=True)
    return rows, failures, absent, n_runs


def main():
    args = parse_args(__doc__, seeds=1, runs="network_truth")
    names = QUICK if args.short else tuple(name for name in CASES if stored(name))
    missing = [name for name in CASES if not stored(name)]
    references = {name: Reference(name) for name in names}
    cases = []
    for name in names:
        case, reference = CASES[name], references[name]
        size = " x ".join(map(str, load(name)[0].shape))
        hidden = "-".join(map(str, case.hidden))
        cases.append([name, size, hidden, case.prior, case.noise or "classes",
                      " and ".join(f"{value:.2f}" for value in reference.r_hat),
                      f"{float(reference.seconds):.0f}"])  # fmt: skip
    own, *met = compare(args, names, references, same=False)
    apart = [name for name in names if reference_is_apart(references[name])] or names[:1]
    same, *met_same = compare(args, apart, references, same=True)
    header = ["network", "mean", "sd", "R-hat", "NLL", "step size"]
    body = BODY.format(
        cases=markdown_table(
            ["data", "rows", "hidden", "prior", "noise", "R-hat", "NUTS, s"], cases
        ),
        missing=f"References of {', '.join(missing)} are still to be made." if missing else "",
        own=markdown_table(header, own),
        verdict=verdict(*met),
        ends="" if args.quick else ENDS.strip(),
        same=markdown_table(header, same),
        verdict_same=verdict(*met_same),
    )
    title = "Predictions of networks next to NUTS"
    write_results(args, "network_truth", title, body, spread="Seed 0.")


def reference_is_apart(reference):
    """Whether modes keep the chains of the reference apart."""
    return reference.r_hat[0] > AGREE


if __name__ == "__main__":
    main()
