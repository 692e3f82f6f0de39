"""What predictions cost beside scikit-learn's, and how exact those of linear models are.

python examples/benchmarks/prediction_speed.py
"""

import threading
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import torch
from _common import markdown_table, parse_args, write_results
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor

from skbayes_sgmcmc import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    BayesianOrdinalClassifier,
)

REPEATS = 5
BODY = """{table}

{n_features} features; fits of {n_train:,} rows, ours with {n_draws:,} draws, all by default. Times
are processor times of one thread, the smallest of {repeats} (one row: of a mean over 50 calls), and
take turns with scikit-learn's. Memory is what the call allocates at most, the result included. The
target of one row is 0.5 ms beyond scikit-learn's, of many rows ten times its time in 200 MB, of
`permutation_importance` (5 repeats, {n_importance:,} rows) five times.

Where a row's logit varies little over the draws, `predict_proba` integrates over a normal logit of
the draws' mean and variance; other rows average over a fourth of the draws, which are given the
mean and the covariance of all. "Every draw" is the average over all of them. On {n_checked:,} rows
the two differ by at most {error:.1e}, and the Monte Carlo error of the average over the draws is
{mcse:.1e}. {share:.0%} of the rows were near enough.

## Classes that can be separated

{separable}

## Several classes

{classes}

{n_classes} classes and {n_of_classes} features; fits of {n_train:,} rows. Where a row's logits vary
little, the average over the draws is that of a second-order expansion about the mean logits, with
their covariances over the draws; other rows average over few draws, as below.

## Other linear models, and posteriors that are not narrow

{others}

Fits of {n_others:,} rows with 30 features. Averages are over one of 16 draws, or of 8 or 4 of rows
whose predictors vary more, and of 4 with a link. These draws are given the mean and the covariance
of all, so that averages of quadratic functions are exact. Means and intervals of regressions take
all draws where the logarithm of the mean varies by more than 0.25, or the mean by more than half of
the noise. Errors are root mean squares over 300 rows, of probabilities or means; the Monte Carlo
error is that of the average over all draws.

## Perceptrons

{networks}

Layers {layers}, {n_network_draws} draws and {n_of_network} features. `predict` of a regressor and
`predict_proba` of a classifier average over all draws; scikit-learn's predict with one network.
Times for {n_peer:,} rows are measured with {n_network_rows:,} rows (scikit-learn's: with all). "By
torch" is without the extra `fast`, or with `compiled=False`. The first call of a process took up to
{first:.2g} s more, for loading the compiled code; the first one after an installation compiles it,
once, in about 3 s. Calls with fewer than some hundred rows stay with torch. Memory is what the
process grows by at most in a later call of {n_network_rows:,} rows. The targets are 30 times
scikit-learn's time in 200 MB, and 1 ms for one row.

At the speed of torch's product of two large matrices, the multiplications alone take
{products:.2g} s, {least:.0f} (regression) and {least_of_classes:.0f} (classes) times scikit-learn's
time. The rest is activations, softmax and averages.
"""


def seconds(call, n_calls=1):
    start = time.process_time()
    for _ in range(n_calls):
        call()
    return (time.process_time() - start) / n_calls


def in_turn(ours, peer, n_calls=1):
    """The smallest times of two functions that take turns."""
    times = [(seconds(ours, n_calls), seconds(peer, n_calls)) for _ in range(REPEATS)]
    return np.min(times, axis=0)


def megabytes(call):
    tracemalloc.start()
    call()
    most = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return most


def of_separable_classes(n_train, n_rows, n_some):
    """A table of times and errors where the posterior is skewed: the sign of one of 30 features."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_train, 30))
    y = (X[:, 0] > 0.0).astype(int)
    clf = BayesianLogisticRegression(prior_scale=1.0, random_state=0).fit(X, y)
    peer = LogisticRegression().fit(X, y)
    many = rng.standard_normal((n_rows, 30))
    some = many[:n_some]
    first = seconds(lambda: clf.predict_proba(some[:1]))
    cost = in_turn(lambda: clf.predict_proba(many), lambda: peer.predict_proba(many))
    memory = megabytes(lambda: clf.predict_proba(many))
    every = seconds(lambda: clf.predict_proba_samples(some).mean(axis=0)) * n_rows / n_some
    rows = [
        [f"{n_rows:,} rows", *(f"{each:.3g} s" for each in cost), f"{memory:.0f}"],
        ["the same, every draw (from fewer rows)", f"{every:.3g} s", "", ""],
        ["the first call (moments)", f"{first:.2g} s", "", ""],
    ]
    errors = []
    for stretch in (1.0, 3.0, 10.0):
        draws = clf.predict_proba_samples(stretch * some)[:, :, 1]
        away = clf.predict_proba(stretch * some)[:, 1] - draws.mean(axis=0)
        mcse = draws.std(axis=0) / np.sqrt(len(draws))
        size = [np.sqrt(np.square(each).mean()) for each in (away, mcse)]
        errors.append(
            [f"{stretch:g}", *(f"{x:.1e}" for x in size), f"{size[0] / size[1]:.2f}",
             f"{np.abs(away).max():.1e}", f"{mcse.max():.1e}"]
        )  # fmt: skip
    head = [
        "rows times",
        "error",
        "Monte Carlo error",
        "ratio",
        "largest error",
        "largest MC error",
    ]
    return (
        markdown_table(["", "ours", "scikit-learn", "memory, MB"], rows)
        + f"\n\nFits of {n_train:,} rows. Below are root mean squares over {n_some:,} rows of the "
        "difference from the average over all draws, and of the Monte Carlo error of that average; "
        "rows are like those of the fit, or stretched.\n\n" + markdown_table(head, errors)
    )


def of_several_classes(n_classes, n_features, n_train, n_rows, n_some):
    """A table of the times and errors of predictions of several classes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_train, n_features))
    w = rng.standard_normal((n_features, n_classes)) / np.sqrt(n_features)
    y = (X @ w + rng.gumbel(size=(n_train, n_classes))).argmax(1)
    clf = BayesianLogisticRegression(prior_scale=1.0, random_state=0).fit(X, y)
    peer = LogisticRegression().fit(X, y)
    many = rng.standard_normal((n_rows, n_features))
    some = many[:n_some]
    first = seconds(lambda: clf.predict_proba(some[:1]))
    one = in_turn(lambda: clf.predict_proba(some[:1]), lambda: peer.predict_proba(some[:1]), 50)
    all_rows = in_turn(lambda: clf.predict_proba(many), lambda: peer.predict_proba(many))
    memory = megabytes(lambda: clf.predict_proba(many))
    every = seconds(
        lambda: [clf.predict_proba_samples(some[k : k + 20]) for k in range(0, 100, 20)]
    )
    some = some[:200]
    draws, ours = clf.predict_proba_samples(some), clf.predict_proba(some)
    exact = draws.mean(axis=0)
    error = np.abs(exact - ours)
    mcse = float((draws.std(axis=0) / np.sqrt(len(draws))).mean())
    share = (error.max(axis=1) > 1e-13).mean()

    def row(what, pair, memory=""):
        mine, theirs = pair
        return [
            what,
            f"{1e3 * mine:.3g} ms",
            f"{1e3 * theirs:.3g} ms",
            f"{mine / theirs:.1f}",
            memory,
        ]

    rows = [
        row("one row", one),
        row(f"{n_rows:,} rows", all_rows, f"{memory:.0f}"),
        ["100 rows, every draw", f"{1e3 * every:.3g} ms", "", "", ""],
        ["the first call (moments)", f"{1e3 * first:.3g} ms", "", "", ""],
    ]
    table = markdown_table(["", "ours", "scikit-learn", "ratio", "memory, MB"], rows)
    return (
        f"{table}\n\nOn {len(ours)} rows, the probabilities differ from those of all draws by at "
        f"most {error.max():.1e}, and the Monte Carlo error of the average over the draws is "
        f"{mcse:.1e}. {share:.0%} of the rows were near enough."
    )


def resident_growth(call):
    """Megabytes by which a process grows at most during a call, on Linux."""
    status, done, found = Path("/proc/self/statm"), threading.Event(), []

    def resident():
        return int(status.read_text().split()[1]) * 4096 / 1e6

    def watch():
        while not done.wait(0.002):
            found.append(resident())

    before, watcher = resident(), threading.Thread(target=watch)
    watcher.start()
    call()
    done.set()
    watcher.join()
    return max([*found, before]) - before


def of_networks(n_train, n_rows, n_peer, n_features=10, layers=(16, 16, 16, 16)):
    """What the page says about perceptrons."""
    rng = np.random.default_rng(0)
    X, many = rng.standard_normal((n_train, n_features)), rng.standard_normal((n_peer, n_features))
    y = X[:, 0] + np.sin(X[:, 1]) + 0.1 * rng.standard_normal(n_train)
    some, table, theirs, first = many[:n_rows], [], [], []
    for kind, peer, target, method in (
        (BayesianMLPRegressor, MLPRegressor, y, "predict"),
        (BayesianMLPClassifier, MLPClassifier, y > 0.0, "predict_proba"),
    ):
        with warnings.catch_warnings():  # costs do not depend on how long it ran
            warnings.simplefilter("ignore")
            options = {"hidden_layer_sizes": layers, "random_state": 0}
            model = kind(burn_in=400, n_draws=100, thinning=2, **options).fit(X, target)
            one = peer(max_iter=20, **options).fit(X, target)
        ours, given = getattr(model, method), getattr(one, method)
        first.append(seconds(lambda c=ours: c(some)))  # code is loaded, or compiled
        single = in_turn(lambda c=ours: c(X[:1]), lambda c=given: c(X[:1]), 50)
        cost = in_turn(lambda c=ours: c(some), lambda c=given: c(many))
        first[-1] -= cost[0]
        memory = resident_growth(lambda c=ours: c(some))
        model.compiled = False
        by_torch = np.array([seconds(lambda c=ours: c(some)), cost[1] * n_rows / n_peer])
        scale = np.array([n_peer / n_rows, 1.0])

        def row(what, pair, unit="s", memory="", kind=kind):
            shown = (f"{each * (1e3 if unit == 'ms' else 1.0):.3g} {unit}" for each in pair)
            return [f"{kind.__name__}, {what}", *shown, f"{pair[0] / pair[1]:.0f}", memory]

        table += [
            row("one row", single, "ms"),
            row(f"{n_peer:,} rows", cost * scale, memory=f"{memory:.0f}"),
            row("the same by torch", by_torch * n_peer / n_rows),
        ]
        theirs.append(cost[1])
    posterior = model.posterior_
    shapes = (shape for name, shape in posterior.shapes.items() if name.startswith("weight"))
    n_products = posterior.n_pooled * n_peer * sum(np.prod(shape) for shape in shapes)
    square = torch.randn(1024, 1024)
    products = n_products * min(seconds(lambda: square @ square) for _ in range(9)) / 1024**3
    least, least_of_classes = products / np.array(theirs)
    return {
        "networks": markdown_table(["", "ours", "scikit-learn", "ratio", "memory, MB"], table),
        "n_network_draws": posterior.n_pooled, "layers": layers, "n_peer": n_peer,
        "n_of_network": n_features, "n_network_rows": n_rows, "products": products,
        "least": least, "least_of_classes": least_of_classes, "first": max(first),
    }  # fmt: skip


def of_other_models(n_train, n_rows):
    """A table of times and errors of classes, ordered classes, and regressions."""
    rng = np.random.default_rng(0)
    X, many = rng.standard_normal((n_train, 30)), rng.standard_normal((n_rows, 30))
    f = X @ (0.5 * rng.standard_normal((30, 4)))
    logistic, mean = rng.logistic(size=n_train), np.exp(0.5 * f[:, 0])
    counts = BayesianGLMRegressor(likelihood="poisson", random_state=0)
    normal = BayesianGLMRegressor(random_state=0)
    of_classes = BayesianLogisticRegression(prior_scale=1.0, random_state=0)
    cases = (
        ("four classes", of_classes, (f + rng.gumbel(size=f.shape)).argmax(1), "predict_proba"),
        ("four separable classes", of_classes, f.argmax(1), "predict_proba"),
        ("ordered classes", BayesianOrdinalClassifier(random_state=0),
         np.digitize(f[:, 0] + logistic, [-1.0, 1.0]), "predict_proba"),
        ("normal", normal, f[:, 0] + rng.standard_normal(n_train), "predict"),
        ("normal, intervals", normal, f[:, 0] + rng.standard_normal(n_train), "predict_interval"),
        ("Poisson", counts, rng.poisson(mean), "predict"),
        ("Poisson, intervals", counts, rng.poisson(mean), "predict_interval"),
    )  # fmt: skip
    rows = []
    for name, model, y, method in cases:
        call = getattr(model.fit(X, y), method)
        call(many[:1])
        cost = [f"{seconds(lambda c=call: c(many)):.2g} s"]
        if method == "predict_interval":
            rows.append([name, *cost, "", "", ""])
            continue
        samples = getattr(
            model, {"predict": "predict_mean_samples"}.get(method, f"{method}_samples")
        )
        some = many[:300]
        every, draws = seconds(lambda s=samples, r=some: s(r)) * n_rows / len(some), samples(some)
        error = np.sqrt(np.square(call(some) - draws.mean(axis=0)).mean())
        mcse = np.sqrt(draws.var(axis=0).mean() / len(draws))
        rows.append([name, *cost, f"{every:.2g} s", f"{error:.1e}", f"{mcse:.1e}"])
    head = [f"{n_rows:,} rows", "ours", "every draw", "error", "Monte Carlo error"]
    return markdown_table(head, rows)


def main():
    args = parse_args(__doc__, seeds=1, quick_seeds=1)
    n_features, n_train = (5, 500) if args.short else (100, 20_000)
    n_rows, n_some, n_importance = (2000, 200, 100) if args.short else (1_000_000, 2000, 1000)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_train, n_features))
    w = rng.standard_normal(n_features) / np.sqrt(n_features)
    y = (rng.random(n_train) < 1.0 / (1.0 + np.exp(-X @ w))).astype(int)
    clf = BayesianLogisticRegression(prior_scale=1.0, random_state=0).fit(X, y)
    peer = LogisticRegression().fit(X, y)
    many = rng.standard_normal((n_rows, n_features))
    some = many[:n_some]
    table = []

    def add(what, ours, theirs, unit, memory=""):
        scale = 1e3 if unit == "ms" else 1.0
        cost = (f"{scale * each:.3g} {unit}" for each in (ours, theirs))
        table.append([what, *cost, f"{ours / theirs:.1f}", memory])

    clf.predict_proba(some)  # the moments are found at the first call
    one = in_turn(lambda: clf.predict_proba(X[:1]), lambda: peer.predict_proba(X[:1]), 50)
    add("one row", *one, "ms")
    single = LogisticRegression().fit(X.astype(np.float32), y)  # it predicts in this precision
    for kind, rows, other in (
        ("", some, peer),
        ("", many, peer),
        (", float32", many.astype(np.float32), single),
    ):
        cost = in_turn(
            lambda x=rows: clf.predict_proba(x), lambda x=rows, o=other: o.predict_proba(x)
        )
        memory = megabytes(lambda x=rows: clf.predict_proba(x))
        add(f"{len(rows):,} rows{kind}", *cost, "ms", f"{memory:.0f}")
    every = seconds(lambda: clf.predict_proba_samples(some).mean(axis=0))
    theirs = seconds(lambda: peer.predict_proba(some))
    add(f"{len(some):,} rows, every draw", every, theirs, "ms")

    def importance(model):
        shown = X[:n_importance], y[:n_importance]
        return lambda: permutation_importance(model, *shown, random_state=0)

    cost = [seconds(importance(model)) for model in (clf, peer)]
    add("`permutation_importance`", *cost, "s")

    n_classes, n_of_classes = 10, 5 if args.short else 64
    classes = of_several_classes(n_classes, n_of_classes, n_train, n_rows // 10, n_some)
    separable = of_separable_classes(n_train // 10, n_rows, n_some)
    networks = of_networks(n_train // 10, n_rows // 10, n_rows)
    n_others = n_train // 20 if n_train > 1000 else n_train
    draws = clf.predict_proba_samples(some)[:, :, 1]
    exact, ours = draws.mean(axis=0), clf.predict_proba(some)[:, 1]
    body = BODY.format(
        table=markdown_table(["", "ours", "scikit-learn", "ratio", "memory, MB"], table),
        n_features=n_features, n_train=n_train, n_draws=len(draws), repeats=REPEATS,
        n_importance=n_importance, n_checked=len(some), error=np.abs(exact - ours).max(),
        mcse=float((draws.std(axis=0) / np.sqrt(len(draws))).mean()),
        share=float((np.abs(exact - ours) > 1e-13).mean()), classes=classes,
        n_classes=n_classes, n_of_classes=n_of_classes, separable=separable,
        others=of_other_models(n_others, n_rows // 10), n_others=n_others, **networks,
    )  # fmt: skip
    write_results(args, "prediction_speed", "Predictions of linear models and perceptrons", body)


if __name__ == "__main__":
    main()
