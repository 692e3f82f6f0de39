"""Experiment D6: fast gradient sign attacks on networks for MNIST (Deng et al. 2019, fig. 2b).

SKBAYES_DATA=folder python examples/benchmarks/d6_fgsm.py

The numbers of finished runs are stored in the file ``--runs`` and are not computed again.
"""

import warnings
from functools import partial

import numpy as np
from _common import (
    finished,
    load_mnist,
    markdown_table,
    mean_sd,
    new_figure,
    parse_args,
    save_figure,
    some_draws,
    write_results,
)

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianMLPClassifier,
    SamplingWarning,
)
from skbayes_sgmcmc.inspection import AdversarialCurveDisplay
from skbayes_sgmcmc.samplers import PSGLD, SGLD
from skbayes_sgmcmc.schedules import BlockDecay

BATCH = 100
NETWORKS = {
    "mlp": ("MLP 784-200-200-10", BayesianMLPClassifier, {"hidden_layer_sizes": (200, 200)}),
    "cnn": (
        "CNN",
        BayesianCNNClassifier,
        {
            "image_shape": (1, 28, 28),
            "conv_channels": (8, 16),
            "kernel_size": 5,
            "hidden_layer_sizes": (100,),
        },
    ),
}
COLD = "T = 1/N"
# name: sampler, first step size, temperature, and the predictions that get a row with their lines
METHODS = {
    "psgld_t1": (PSGLD(), 5e-4, 1.0, {"averaged": ("pSGLD, T = 1", "C0", "-")}),
    "psgld_cold": (PSGLD(), 5e-4, COLD, {"averaged": ("pSGLD, T = 1/N", "C2", "-")}),
    "rmsprop": (
        PSGLD(adapt="always"),
        5e-4,
        0.0,
        {
            "averaged": ("RMSprop (pSGLD, T = 0), averaged", "C4", "--"),
            "last": ("RMSprop (pSGLD, T = 0), last", "C1", "--"),
        },
    ),
    "sgd": (SGLD(), 0.1, 0.0, {"last": ("SGD (SGLD, T = 0), last", "C3", "--")}),
}
BODY = """
MNIST ({rows} training images), inputs divided by 255, prior N(0, 1), He initialisation, minibatches
of {batch}; epochs: {epochs} for the MLP, {cnn_epochs} for the CNN (convolutions of 8 and 16
channels, 5 × 5, each with a ReLU and a 2 × 2 max pool, and 100 hidden units). Step sizes 5e-4
(pSGLD, RMSprop) or 0.1 (SGD), halved after half of the epochs. From there on {n_draws} draws of one
chain are kept. T = 1 is the posterior's temperature. RMSprop and SGD are the same runs without
noise; "averaged" is over the same iterates, "last" the last of them.

Every pixel of the first {attacked:,} test images moves by ζ in the direction that lowers the
averaged probability of the predicted label, and is clipped to [0, 1]: `fgsm(clf, X, eps=ζ)`.
Accuracy in % (at 2,000 images a binomial standard error is at most 1.1%); ζ = 0 is without an
attack, and 10% is chance.

{tables}

Published (a larger CNN, 1000 images in a minibatch, SGHMC at T = 1/1000 after annealing; only a
figure): no difference between methods at small ζ. At ζ = 0.5 Adam and dropout are at chance, SGHMC
is about 10 points above them and SGHMC-SA 11.

{remarks}
"""
REMARKS = """
The published order is not reproduced with these networks and this sampler. From ζ = 0.3 on every
method is below chance, since an attack of one step takes images to other classes. At small ζ the
posterior at T = 1 is the least robust, by far for the MLP. Its weights are larger: of pixels that
are on in fewer than one image in a thousand they remain as under the prior (in a run on 20,000
images, a root mean square of 0.98; 0.013 at T = 1/N), and an attack with ζ = 0.05 on these pixels
alone takes its accuracy from 94% to 42%, where at T = 1/N it has no effect. At T = 1/N noise makes
no difference to RMSprop's averaged iterates. Predictive entropy rises as accuracy begins to fall,
and in most cases falls again: predictions for strongly attacked rows are wrong and more confident.
"""


def attack(model, X, y):
    """Accuracy in % and mean entropy under attack, by strength."""
    display = AdversarialCurveDisplay.from_estimator(model, X, y)
    return {
        "eps": display.eps.tolist(),
        "accuracy": (100 * display.values["accuracy"]).tolist(),
        "entropy": display.values["entropy"].tolist(),
    }


def sample(args, kind, method, data, seed):
    """Curves of the predictions that the method has rows for."""
    X, y, X_test, y_test = data
    _, estimator, parameters = NETWORKS[kind]
    sampler, step, temperature, rows = METHODS[method]
    epochs = args.epochs if kind == "mlp" else args.cnn_epochs
    block = max(1, epochs // 2) * len(X) // BATCH
    model = estimator(
        **parameters,
        prior_scale=1.0,
        standardize=False,
        sampler=sampler,
        step_size=BlockDecay(step, every=block, factor=0.5),
        batch_size=BATCH,
        n_chains=1,
        n_draws=args.draws,
        burn_in=block,
        thinning=max(1, block // args.draws),
        temperature=1.0 / len(X) if temperature == COLD else temperature,
        init="random",
        device="cpu",
        dtype="float32",
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # of few draws of one chain
        model.fit(X, y)
    kinds = {"averaged": model, "last": some_draws(model, slice(-1, None))}
    few = slice(0, args.images)
    return {name: attack(kinds[name], X_test[few], y_test[few]) for name in rows}


def lines_of(results, kind):
    """Runs of every seed, title, colour and style of each row of a network's table."""
    for method, (*_, rows) in METHODS.items():
        for name, line in rows.items():
            yield [run[name] for run in results[kind, method]], *line


def draw_figure(args, results, kinds):
    figure, axes = new_figure(2 * len(kinds), width=3.5, height=3.3)
    for i, kind in enumerate(kinds):
        for runs, title, color, style in lines_of(results, kind):
            for ax, what in zip(axes[2 * i : 2 * i + 2], ("accuracy", "entropy"), strict=True):
                curve = np.mean([run[what] for run in runs], axis=0)
                ax.plot(runs[0]["eps"], curve, color=color, ls=style, marker=".", label=title)
                ax.set(title=NETWORKS[kind][0], xlabel="ζ")
        axes[2 * i].set_ylabel("accuracy, %")
        axes[2 * i + 1].set_ylabel("mean predictive entropy, nats")
    axes[0].legend(frameon=False, fontsize=7)
    caption = "Accuracy and mean predictive entropy under attack against its strength ζ."
    return save_figure(args, figure, "d6_fgsm", caption)


def main():
    numbers = {
        "epochs": (10, 1),
        "cnn-epochs": (3, 1),
        "subset": (None, 5000),
        "images": (2000, 200),
        "draws": (20, 5),
    }
    args = parse_args(__doc__, 1, 1, numbers=numbers, parts=tuple(NETWORKS), runs="d6_fgsm",
                      constants={"batch": BATCH})  # fmt: skip
    data = load_mnist()
    data = data[0][: args.subset], data[1][: args.subset], *data[2:]
    results, tables = {}, []
    for kind in args.parts:
        epochs = args.epochs if kind == "mlp" else args.cnn_epochs
        for method in METHODS:
            results[kind, method] = []
            for seed in args.seeds:
                size = f"{epochs}x{len(data[0])}-{args.draws}x{args.images}"
                settings = {"network": kind, "method": method, "seed": seed, "epochs": epochs,
                            "rows": len(data[0]), "draws": args.draws,
                            "images": args.images}  # fmt: skip
                name = f"{kind}-{method}-seed{seed}-{size}"
                job = partial(sample, args, kind, method, data, seed)
                found = finished(args, name, job, **settings)
                if found is None:
                    raise SystemExit(f"{args.runs} does not hold the run {name!r}.")
                results[kind, method].append(found)
        rows = [
            [title, *(mean_sd(values, 1) for values in np.transpose([r["accuracy"] for r in runs]))]
            for runs, title, *_ in lines_of(results, kind)
        ]
        strengths = results[kind, "sgd"][0]["last"]["eps"]
        header = [
            NETWORKS[kind][0],
            *(f"ζ = {eps:g}" if eps == 0 else f"{eps:g}" for eps in strengths),
        ]
        tables.append(markdown_table(header, rows))
    body = BODY.format(
        rows=f"{len(data[0]):,}",
        batch=BATCH,
        epochs=args.epochs,
        cnn_epochs=args.cnn_epochs,
        n_draws=args.draws,
        attacked=args.images,
        tables="\n\n".join(tables),
        remarks="" if args.quick else REMARKS.strip(),
    )
    figure = draw_figure(args, results, args.parts)
    title = "D6: fast gradient sign attacks on networks for MNIST"
    spread = "Seed 0." if len(args.seeds) == 1 else None
    write_results(args, "d6_fgsm", title, body, [figure], spread=spread)


if __name__ == "__main__":
    main()
