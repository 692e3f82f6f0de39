"""Eight small networks: their data, their settings, and comparisons with long NUTS runs of them.

The program that makes the references, ``tests/data/make_reference_networks.py``, reads the cases
from here, in an environment without the package: this module imports it only where it is used.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

FILE = Path(__file__).resolve().parents[2] / "tests" / "data" / "reference_networks.npz"
#: most rows of the predictions that are compared
MOST_NEW = 50
#: cases whose data are in a file of SKBAYES_DATA
IN_FILE = ("yacht", "energy")


@dataclass(frozen=True)
class Case:
    """A network, the scale of its prior and its noise (None for classes).

    ``warmup`` and ``draws`` are the lengths of each chain of the reference.
    """

    hidden: tuple[int, ...]
    prior: str
    noise: str | None
    warmup: int
    draws: int


CASES = {
    "toy": Case((50,), "fan_in", "infer", 500, 1000),
    "yacht": Case((16, 16), "learned", "heteroscedastic", 600, 500),
    "energy": Case((16,), "learned", "infer", 600, 500),
    "diabetes": Case((50,), "learned", "heteroscedastic", 500, 600),
    "wine": Case((16,), "fan_in", None, 400, 1000),
    "breast_cancer": Case((16, 16), "learned", None, 500, 500),
    "two_targets": Case((8,), "learned", "infer", 600, 600),
    "two_labels": Case((8,), "fan_in", None, 600, 600),
}


def load(name):
    """X, y, X_new, y_new in their own units."""
    if name == "toy":
        rng = np.random.default_rng(0)
        X = np.concatenate([rng.uniform(-3, -1, 50), rng.uniform(1, 3, 50)])[:, None]
        X_new = np.linspace(-4.0, 4.0, MOST_NEW)[:, None]
        y, y_new = (np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(len(x)) for x in (X, X_new))
        return X, y, X_new, y_new
    if name in IN_FILE:
        if "SKBAYES_DATA" not in os.environ:
            raise SystemExit("Set SKBAYES_DATA to a folder that holds uci_regression.npz.")
        file = np.load(Path(os.environ["SKBAYES_DATA"]) / "uci_regression.npz")
        X, y, train, test = (file[f"{name}/{part}"] for part in ("X", "y", "train", "test"))
        parts = X[train[0]], X[test[0]], y[train[0]], y[test[0]]
    elif name == "two_targets":  # the disease, and the body mass from the other columns
        X, y = datasets.load_diabetes(return_X_y=True)
        y, X = np.column_stack([y, X[:, 2]]), np.delete(X, 2, axis=1)
        parts = train_test_split(X, y, test_size=0.2, random_state=0)
    elif name == "two_labels":  # the vineyard, and whether the wine is dark
        X, y = datasets.load_wine(return_X_y=True)
        y, X = (
            np.column_stack([y, X[:, 9] > np.median(X[:, 9])]).astype(int),
            np.delete(X, 9, axis=1),
        )
        parts = train_test_split(X, y, test_size=0.2, random_state=0, stratify=y[:, 0])
    else:
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        classes = None if CASES[name].noise else y
        parts = train_test_split(X, y, test_size=0.2, random_state=0, stratify=classes)
    X, X_new, y, y_new = parts
    return X, y, X_new[:MOST_NEW], y_new[:MOST_NEW]


def estimator(name, **parameters):
    """The estimator of a case, not fitted."""
    from skbayes_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor

    case = CASES[name]
    given = {"hidden_layer_sizes": case.hidden, "prior_scale": case.prior} | parameters
    if case.noise is None:
        return BayesianMLPClassifier(calibrate=False, **given)
    return BayesianMLPRegressor(noise=case.noise, **given)


def predictions(model, X_new):
    """f (chains, draws, rows), or probabilities of the classes (chains, draws, rows, classes).

    Of several targets, their f come in another axis, and the classes of all follow each other.
    """
    posterior = model.posterior_
    shape = posterior.n_chains, posterior.n_draws
    found = model._predict_block(slice(0, shape[0] * shape[1]), X_new).astype(float)
    if not hasattr(model, "classes_"):
        n_targets = np.size(model._y_center)  # the noise may be outputs, too
        found = found[..., :n_targets] * model._y_scale + model._y_center
        found = found if n_targets > 1 else found[..., 0]
    return found.reshape(*shape, *found.shape[1:])


class Moments:
    """Means and standard deviations of predictions, by chain: arrays (chains, rows, ...)."""

    def __init__(self, mean, sd):
        self.mean, self.sd = np.asarray(mean, dtype=float), np.asarray(sd, dtype=float)

    @classmethod
    def of(cls, found):
        """Of predictions (chains, draws, rows, ...)."""
        return cls(found.mean(1), found.std(1))

    def pooled(self):
        """Of all chains as one."""
        variance = (self.sd**2).mean(0) + self.mean.var(0)
        return Moments(self.mean.mean(0)[None], np.sqrt(variance)[None])

    def some(self, chains):
        return Moments(self.mean[chains], self.sd[chains])


def stored(name):
    """Whether there is a reference of this case."""
    with np.load(FILE) as file:
        return f"{name}/mean" in file.files


class Reference:
    """The stored reference of a case."""

    def __init__(self, name):
        with np.load(FILE) as file:
            fields = {key: file[key] for key in file.files if key.startswith(f"{name}/")}
        self.fields = {key.removeprefix(f"{name}/"): value for key, value in fields.items()}
        mean, sd = self.fields["mean"], self.fields["sd"]  # (chains, halves, rows, ...)
        self.halves = [Moments(mean[:, half], sd[:, half]) for half in (0, 1)]
        variance = (sd.astype(float) ** 2).mean(1) + mean.astype(float).var(1)
        self.chains = Moments(mean.mean(1), np.sqrt(variance))

    def __getattr__(self, key):
        try:
            return self.fields[key]
        except KeyError:
            raise AttributeError(key) from None


def differences(ours, reference):
    """Median |difference of means| in the reference's sds, and median ratio of sds.

    Chains are compared one by one; the medians are over chains and rows, without rows whose
    prediction is certain in the reference (sd below 1e-4 for probabilities).
    """
    uncertain = reference.sd > 1e-4
    sd = reference.sd[uncertain]
    distance = np.abs(ours.mean - reference.mean)[uncertain] / sd
    return float(np.median(distance)), float(np.median(ours.sd[uncertain] / sd))
