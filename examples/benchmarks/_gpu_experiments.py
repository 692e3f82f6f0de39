"""Experiments of the papers on a GPU, by the functions of their own benchmarks.

Each function returns the numbers of one record. Several seeds are chains that run together.
"""

import time
import types
import warnings
from functools import partial

import numpy as np
import torch
from _common import load_cifar10, load_documents, some_draws
from _images import label, lengths, make_estimator, predictions
from _images import score as scores_of
from d4_mnist_fashion import run as run_d4
from d7_resnet20 import METHODS as D7_METHODS
from d7_resnet20 import PIXEL_SD, pre_train
from d7_resnet20 import run as run_d7
from m5_dpfa import METHODS as TOPIC_METHODS
from m5_dpfa import run as run_topics
from p4_mnist_fnn import EXPERIMENT as P4
from p5_mnist_cnn import EXPERIMENT as P5
from p6_mnist_cnn500 import EXPERIMENT as P6
from p7_cifar10_cnn import EXPERIMENT as P7
from resnet import ResNet20

from skbayes_sgmcmc import BayesianModuleClassifier
from skbayes_sgmcmc.augmentation import Compose, RandomCrop, RandomFlip
from skbayes_sgmcmc.samplers import MCLMC, SGHMC
from skbayes_sgmcmc.schedules import Cyclical

EXPERIMENTS = {"p4": P4, "p5": P5, "p6": P6, "p7": P7}


def timed(function):
    """The result, and seconds on the clock."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few effective draws of one chain
        result = function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


def recorded(run, args):
    """``run(compiled)`` and its seconds; on a GPU with CUDA graphs, if these can be recorded."""
    if args.device == "cuda":
        try:
            return timed(lambda: run(True))
        except ValueError as error:
            if "compiled=True" not in str(error):
                raise
            print("without graphs:", error, flush=True)
    return timed(lambda: run("auto"))


def images(name, size, method, chains, args):
    """Error, NLL and ECE of every chain of P4 to P7 in full, and seconds of the fit."""
    experiment = EXPERIMENTS[name]
    data = [part[: 500 if args.small else None] for part in experiment.load()]
    X, y, X_test, y_test = data
    options = types.SimpleNamespace(
        checkpoints=None,
        epochs=1 if args.small else experiment.epochs,
        device=args.device,
        short=args.small,
    )
    model = make_estimator(experiment, options, size, method, 0, len(X))
    model.set_params(n_chains=chains)
    _, seconds = recorded(lambda way: model.set_params(compiled=way).fit(X, y), args)
    found = [
        predictions(some_draws(model, slice(None), slice(c, c + 1)), X_test, y_test)["scores"]
        for c in range(model.n_chains_)
    ]
    return {
        "scores": {kind: [one[kind][0] for one in found] for kind in ("averaged", "last")},
        "wall": seconds,
        "steps": lengths(experiment, options, len(X))[0] * options.epochs,
        "size": label(size),
        "used": " ".join(model.compiled_),
    }


def sparse_images(part, method, args):
    """D4 or D5, as their own benchmark runs them."""
    short = {"epochs": 1, "subset": 300, "images": 10, "batch": 100}
    full = {"epochs": 200, "subset": None, "images": 2000, "batch": 1000}
    options = types.SimpleNamespace(device=args.device, **(short if args.small else full))

    def run(compiled):
        options.compiled = compiled
        return run_d4(options, part, method, 0)

    found, seconds = recorded(run, args)
    return found | {"wall": seconds}


def cifar(args):
    """CIFAR-10 in the units of D7: training and test rows."""
    X, y, X_test, y_test = load_cifar10()
    few = slice(100 if args.small else None)
    return X[few] / np.float32(PIXEL_SD), y[few], X_test[few] / np.float32(PIXEL_SD), y_test[few]


def d7_options(args):
    """20 epochs of the published 200 before the sparse runs, and 20 of 1,000 in each."""
    return types.SimpleNamespace(
        device=args.device, epochs=2 if args.small else 20, pre_epochs=1 if args.small else 20,
        width=4 if args.small else 16, batch=50 if args.small else 1000, seeds=[0],
    )  # fmt: skip


def d7_start(args):
    """The network from which the sparse runs of D7 start; its position is a file of --out."""
    options, path = d7_options(args), args.out / "gpu-d7-start.npy"

    def run(compiled):
        options.compiled = compiled
        return pre_train(options, cifar(args), path)

    found, seconds = recorded(run, args)
    return found | {"wall": seconds}


def d7(share, method, args):
    """One cell of D7's table, with all schedules as much shorter as the epochs are."""
    assert method in D7_METHODS
    options, path = d7_options(args), args.out / "gpu-d7-start.npy"
    if not path.exists():
        d7_start(args)

    def run(compiled):
        options.compiled = compiled
        return run_d7(options, share, method, cifar(args), path)

    found, seconds = recorded(run, args)
    return found | {"wall": seconds}


def topics(method, corpus, args):
    """Perplexity and documents a second of LDA or DPFA, with torch's steps on the device."""
    train, test, _ = load_documents(corpus)
    parameters = TOPIC_METHODS[method] | {"device": args.device, "compiled": False}
    if args.small:
        size = 4 if "doc_topic_prior" in parameters else (4, 3)
        parameters |= {"n_components": size}
    seconds = 0.5 if args.small else 30.0
    run = partial(run_topics, parameters, train, test[: 50 if args.small else 500], seconds, 0)
    found, wall = timed(run)
    return found | {"wall": wall}


def resnet(kind, args):
    """ResNet-20 on CIFAR-10 by cyclical SGHMC or a microcanonical chain: NLL and ECE."""
    X, y, X_test, y_test = cifar(args)
    batch, epochs, cycles = (50, 2, 2) if args.small else (500, 20, 2)
    n_steps = epochs * -(-len(X) // batch)
    settings = {
        "input_shape": (3, 32, 32), "prior_scale": 0.2, "batch_size": batch, "n_chains": 1,
        "augment": Compose([RandomCrop(), RandomFlip()]), "device": args.device,
        "dtype": "float32", "random_state": 0,
    }  # fmt: skip
    if kind == "cyclical":
        sampler = {
            "sampler": SGHMC(friction=0.1), "step_size": Cyclical(0.1, n_cycles=cycles),
            "burn_in": 0, "thinning": max(1, n_steps // 100), "n_draws": min(100, n_steps),
            "init": "random",
            "temperature": 1.0 / len(X),  # as in the code of Zhang et al. (2020)
        }  # fmt: skip
    else:
        half = n_steps // 2
        start = "random" if args.small else "auto"
        sampler = {
            "sampler": MCLMC(), "burn_in": half, "thinning": max(1, half // 20), "init": start,
            "n_draws": min(20, half),
        }  # fmt: skip
    width = 4 if args.small else 16
    model = BayesianModuleClassifier(partial(ResNet20, width=width), **settings, **sampler)
    _, seconds = recorded(lambda way: model.set_params(compiled=way).fit(X, y), args)
    found = scores_of(y_test, model.predict_proba(X_test))
    return {"scores": found, "wall": seconds, "n_draws": model.n_draws_, "steps": n_steps,
            "used": " ".join(model.compiled_)}  # fmt: skip
