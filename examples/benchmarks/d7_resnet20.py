"""Experiment D7: ResNet-20 on CIFAR-10, pruned while sampling (Deng et al. 2019, table 3).

SKBAYES_DATA=folder python examples/benchmarks/d7_resnet20.py --device cuda

``--parts 90 --epochs 200`` is one share of zeros with all schedules five times as short, and
``--quick`` is shorter still. The numbers of finished runs are stored in the file ``--runs`` and are
not computed again; the networks of the pre-training are stored beside it.
"""

import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from _common import (
    finished,
    load_cifar10,
    markdown_table,
    mean_sd,
    parse_args,
    some_draws,
    write_results,
)
from _images import predictions

from skbayes_sgmcmc import BayesianModuleClassifier, Pruning, SamplingWarning, SpikeSlab
from skbayes_sgmcmc.augmentation import Compose, RandomCrop, RandomFlip
from skbayes_sgmcmc.samplers import SGHMC
from skbayes_sgmcmc.schedules import Exponential, MultiStep, Polynomial

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from resnet import SPARSE_LAYERS, ResNet20

N_DRAWS, PUBLISHED_EPOCHS = 20, 1000
#: the paper's 2e-6 and 2e-9 times N
TRAINING_STEP, STEP = 0.1, 1e-4
#: gain of the published code
GAIN = Polynomial(a=0.02, b=1000.0, gamma=0.75)
#: pixels' standard deviation, about; they are centred
PIXEL_SD = 0.25
# share of zeros in %: v_0 and v_1
PARTS = {"30": (0.5, 1e-3), "50": (0.1, 5e-4), "70": (0.1, 5e-5), "90": (0.005, 1e-5)}
# row: adaptation, whether annealed, published accuracies in % by share of zeros
METHODS = {
    "A-SGHMC": (None, True, (94.07, 94.16, 93.16, 90.59)),
    "A-SGHMC-EM": ("em", True, (94.18, 94.19, 93.41, 91.26)),
    "A-SGHMC-SA": ("sa", True, (94.23, 94.27, 93.74, 91.68)),
    "SGHMC-SA": ("sa", False, (94.13, 94.11, 93.52, 91.45)),
}


def estimator(args, n_rows, n_steps, **options):
    """SGHMC on ResNet-20, a chain for each seed; draws are from the last tenth of the run."""
    n_draws = min(N_DRAWS, max(1, n_steps // 10))
    thinning = max(1, n_steps // 10 // n_draws)
    settings = {
        "input_shape": (3, 32, 32),
        "prior_scale": 0.2,  # a weight decay of 25
        "augment": Compose([RandomCrop(), RandomFlip()]),
        "sampler": SGHMC(friction=0.1),
        "integrator": "euler",
        "batch_size": batch_of(args, n_rows),
        "n_chains": len(args.seeds),
        "n_draws": n_draws,
        "thinning": thinning,
        "burn_in": n_steps - n_draws * thinning,
        "init": "random",
        "device": args.device,
        "compiled": getattr(args, "compiled", "auto"),
        "dtype": "float32",
        "random_state": 0,
    }
    module = partial(ResNet20, width=args.width)
    return BayesianModuleClassifier(module, **(settings | options))


def pre_train(args, data, path):
    """SGHMC at a constant temperature; last positions (chains, parameters) go to the file."""
    X, y, X_test, y_test = data
    n_steps = args.pre_epochs * steps_of_epoch(args, X)
    model = estimator(args, len(X), n_steps, step_size=TRAINING_STEP, temperature=1.0 / 20_000.0)
    model.fit(X, y)
    names = [name for name, _ in model.module(10).named_parameters()]
    last = [model.posterior_[name][:, -1].reshape(model.n_chains_, -1) for name in names]
    chains = [slice(c, c + 1) for c in range(model.n_chains_)]
    errors = [1.0 - some_draws(model, slice(-1, None), c).score(X_test, y_test) for c in chains]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.concatenate(last, axis=1))
    return {"error": (100.0 * np.array(errors)).tolist()}


def batch_of(args, n_rows):
    return min(args.batch, n_rows // 2)


def steps_of_epoch(args, X):
    return -(-len(X) // batch_of(args, len(X)))


def run(args, share, method, data, positions):
    """Errors in % of every chain: its last network, the average over its draws, its best draw."""
    X, y, X_test, y_test = data
    epoch = steps_of_epoch(args, X)
    n_steps = args.epochs * epoch
    adaptation, annealed, _ = METHODS[method]
    v_0, v_1 = PARTS[share]
    # as published an epoch of 1000 has 50 steps: tau times 1.005 at each, D^(k / 50)
    shorter = PUBLISHED_EPOCHS / args.epochs
    cooling = Exponential(1e-3, rate=1.005 ** (-shorter / epoch))
    milestones = [int(part * n_steps) for part in (0.7, 0.9)]
    prior = SpikeSlab(v_0, v_1, sigma_prior=(1000.0, 1000.0), learn_sigma=True,
                      adaptation=adaptation, gain=GAIN, layers=SPARSE_LAYERS)  # fmt: skip
    model = estimator(
        args,
        len(X),
        n_steps,
        prior=prior,
        prune=Pruning(int(share) / 100, 0.99, period=epoch / shorter, start=0, interval=epoch),
        step_size=MultiStep(STEP, milestones=milestones),
        temperature=cooling if annealed else 1e-3,
        init=np.load(positions),
    ).fit(X, y)
    errors = {"last": [], "averaged": [], "best": []}
    for c in range(model.n_chains_):
        found = predictions(some_draws(model, slice(None), slice(c, c + 1)), X_test, y_test)
        for kind in ("last", "averaged"):
            errors[kind].append(found["scores"][kind][0][0])
        errors["best"].append(min(found["curves"][1]))
    errors["sparsity"], errors["n_parameters"] = model.sparsity_, model.n_effective_parameters_
    return errors


BODY = """
ResNet-20 with batch norms, {rows} training images with random crops and flips, minibatches of
{batch}. **Pre-training**: {pre_epochs} epochs of SGHMC (step size 0.1, which is the published
code's 2e-6 times N, τ = 20,000), whose networks have an accuracy of {before}%. **Sparse sampling**
from there: {epochs} epochs, step size 1e-4 (2e-9 N), divided by 10 after 70% and 90% of them,
τ = 1000, times {factor:.4f} at every epoch where annealed ("A-"), and a share of zeros
S (1 - 0.99^({shorter:g} epochs)): both come as far as in 1000 epochs.
Spike-and-slab prior on all convolutions but the first, v₀ and v₁ by share of zeros as published,
ν = λ = 1000, gain 0.02 (k + 1000)^-0.75; A-SGHMC has fixed latents. Other weights: N(0, 1/25).

Where the data folder has JPEG files, rows can be compared with each other but not with the
published figures in brackets. These are best test accuracies over epochs.

{tables}

"Last" is the last network, "averaged" the mean prediction of {n_draws} networks from the last tenth
of the run, "best" the one of these with the best test accuracy.
"""


def tables(results):
    parts = []
    for kind in ("last", "averaged", "best"):
        rows = []
        for method, (*_, published) in METHODS.items():
            row = [method]
            for place, share in enumerate(PARTS):
                run = results.get((share, method))
                cell = mean_sd(100.0 - np.array(run[kind]), 2) if run else ""
                row.append(f"{cell} ({published[place]:.2f})")
            rows.append(row)
        header = [f"accuracy in %, {kind}", *(f"{share}% zeros" for share in PARTS)]
        parts.append(markdown_table(header, rows))
    return "\n\n".join(parts)


def main():
    def more(parser):
        parser.add_argument("--device", default="cpu")
        parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))

    numbers = {
        "epochs": (PUBLISHED_EPOCHS, 2),
        "pre-epochs": (200, 2),
        "subset": (None, 100),
        "width": (16, 4),
        "batch": (1000, 50),
    }
    constants = {"n_draws": N_DRAWS, "training_step": TRAINING_STEP, "step": STEP, "gain": GAIN}
    args = parse_args(__doc__, 3, 1, numbers=numbers, parts=tuple(PARTS), runs="d7_resnet20",
                      constants=constants, more=more)  # fmt: skip
    warnings.simplefilter("ignore", SamplingWarning)  # of few draws of one chain
    few = slice(args.subset)  # of the rows of tests, too
    X, y, X_test, y_test = load_cifar10()
    data = X[few] / np.float32(PIXEL_SD), y[few], X_test[few] / np.float32(PIXEL_SD), y_test[few]
    size = f"{len(args.seeds)}x{args.pre_epochs}x{args.subset}x{args.batch}x{args.width}"
    lengths = {"chains": len(args.seeds), "pre_epochs": args.pre_epochs, "subset": args.subset,
               "batch": args.batch, "width": args.width}  # fmt: skip
    positions = args.runs.with_name(f"{args.runs.stem}-pre-training-{size}.npy")
    stem = f"pre-training-{size}"
    trained = finished(args, stem, partial(pre_train, args, data, positions), **lengths)
    if trained is None:
        raise SystemExit(f"{args.runs} does not hold the pre-training.")
    if not positions.exists() and not args.no_new:
        pre_train(args, data, positions)  # its numbers are stored, its networks are not
    results = {}
    for share in args.parts:
        for method in args.methods:
            stem = f"{share}-{method}-{args.epochs}-{size}"
            job = partial(run, args, share, method, data, positions)
            settings = lengths | {"share": share, "method": method, "epochs": args.epochs}
            found = finished(args, stem, job, **settings)
            if found is not None:
                results[share, method] = found
    shorter = PUBLISHED_EPOCHS / args.epochs
    body = BODY.format(
        rows=f"{len(data[0]):,}", batch=batch_of(args, len(data[0])), epochs=args.epochs,
        pre_epochs=args.pre_epochs, before=mean_sd(100.0 - np.array(trained["error"]), 2),
        shorter=shorter, factor=1.005**shorter, tables=tables(results), n_draws=N_DRAWS,
    )  # fmt: skip
    spread = "A chain is a seed; ± is the standard deviation over chains."
    title = "D7: ResNet-20 on CIFAR-10, pruned while sampling"
    write_results(args, "d7_resnet20", title, body, spread=spread)


if __name__ == "__main__":
    main()
