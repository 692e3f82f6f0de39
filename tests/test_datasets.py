"""Modules fitted to datasets, whose items are fetched by minibatch."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pytest
import torch
from _cases import cases
from _posteriors import assert_same_draws
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from skbayes_sgmcmc import (
    BayesianMLPClassifier,
    BayesianModuleClassifier,
    BayesianModuleRegressor,
    LatentDirichletAllocation,
)
from skbayes_sgmcmc.inspection import fgsm

X, y = load_digits(return_X_y=True)
X, y = (X[:600] / 16.0).astype(np.float32), y[:600]
TINY = {"n_chains": 2, "n_draws": 4, "burn_in": 20, "thinning": 5, "random_state": 0,
        "step_size": 1e-3, "batch_size": 20, "dtype": "float32",
        "prior_scale": "fan_in"}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


class Pairs(Dataset):
    """Items (x, y) as files would have them; it records which were fetched, and by whom."""

    def __init__(self, x=X, targets=y, broken=(), kind=ValueError):
        self.x, self.y, self.broken, self.kind = x, targets, broken, kind
        self.seen = []

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        self.seen.append((os.getpid(), index))
        if index in self.broken:
            raise self.kind("this file is damaged")
        return self.x[index], self.y[index]


class Columns:
    """A dataset of Hugging Face, as far as it is used: a name, columns, items as mappings."""

    __module__ = "datasets.arrow_dataset"
    column_names = ("pixels", "label")

    def __len__(self):
        return len(X)

    def __getitem__(self, key):
        if key == "label":
            return y.tolist()
        return {"pixels": X[key].tolist(), "label": int(y[key])}


class Splits(dict):
    """Several datasets of Hugging Face, which have a shape."""

    __module__ = "datasets.dataset_dict"
    shape = property(dict.keys)


class Named(nn.Sequential):
    def forward(self, pixels):
        return super().forward(pixels)


def deep(n_outputs=10):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, n_outputs))


@pytest.mark.parametrize("n_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("chosen", ["all", "last_layer"])
def test_a_dataset_gives_the_draws_of_its_array(chosen, n_workers):
    """The same minibatches of the same rows: equal draws and predictions, with y inside or not."""
    clf = BayesianModuleClassifier(deep(), sample_parameters=chosen, **TINY).fit(X, y)
    data = Pairs()
    ours = clone(clf).set_params(n_workers=n_workers)
    for given in ((data, None), (data, y)):
        ours.fit(*given)
        assert_same_draws(clf, ours)
    np.testing.assert_array_equal(ours.predict_proba(data), clf.predict_proba(X))
    here = {process == os.getpid() for process, _ in data.seen}
    assert here == {True}  # items fetched by workers leave no trace in this process
    assert (len(data.seen) < 100) == (n_workers > 0)


def test_items_are_fetched_by_minibatch():
    """A fit of 4 steps fetches their 160 rows and some 300 that are looked at, not all 600."""
    data = Pairs()
    clf = BayesianModuleClassifier(deep(), **(TINY | {"burn_in": 0, "n_draws": 4, "thinning": 1}))
    clf.fit(data, y)
    assert 160 <= len(data.seen) < len(X)


def test_mappings_and_columns():
    """Items that are mappings give the module its arguments by name; labels come from a column."""
    clf = BayesianModuleClassifier(deep(), **TINY).fit(X, y)
    ours = BayesianModuleClassifier(Named(*deep()), **TINY).fit(Columns())
    np.testing.assert_allclose(ours.predict_proba(Columns()), clf.predict_proba(X), atol=1e-6)


def test_weights_and_tensors():
    """Rows of weight zero are not fetched for steps; TensorDataset is a dataset like others."""
    weight = np.repeat([1.0, 0.0], 300)
    clf = BayesianModuleClassifier(deep(), **TINY).fit(X, y, sample_weight=weight)
    data = Pairs()
    ours = clone(clf).fit(data, y, sample_weight=weight)
    np.testing.assert_array_equal(ours.predict_proba(X), clf.predict_proba(X))
    assert max(index for _, index in data.seen) < 300
    pairs = TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    np.testing.assert_array_equal(
        clone(clf).fit(pairs, sample_weight=weight).predict_proba(X), clf.predict_proba(X)
    )
    alone = TensorDataset(torch.from_numpy(X))  # its items are (x,)
    np.testing.assert_array_equal(ours.predict_proba(alone), clf.predict_proba(X))


def test_regressors_and_batch_norms_take_datasets(limits):
    """Statistics of each draw are those of the array's rows, of which some are taken."""
    limits(statistics_rows=100)
    body = nn.Sequential(nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    reg = BayesianModuleRegressor(body, **TINY).fit(X, X[:, 20])
    ours = clone(reg).fit(Pairs(X, X[:, 20]))
    np.testing.assert_allclose(ours.predict(X), reg.predict(X), atol=1e-6)


class Endless(IterableDataset):
    def __iter__(self):
        return iter(zip(X, y, strict=True))


class Unequal(Pairs):
    def __getitem__(self, index):
        return X[index, : 64 - (index == 3)], y[index]


not_a_number = X.copy()
not_a_number[7, 5] = np.nan


class Alone(Pairs):
    def __getitem__(self, index):
        return X[index]


class Triples(Pairs):
    def __getitem__(self, index):
        return X[index], y[index], index


@cases(
    "data, targets, message",
    [
        (Endless(), None, r"a dataset needs __len__ and __getitem__ \(map-style\)"),
        (Pairs(X[:0], y[:0]), None, "it has no items"),
        (Alone(targets=None), None, "y is missing: item 0 of the dataset has no target"),
        (Triples(), None, r"its 3 parts have different shapes. Give pairs \(x, y\)"),
        (Pairs(), y[:5], "y of length 5 is not allowed: the dataset has 600 items"),
        (Unequal(), y, r"item 3 of the dataset: X\[0\] with rows of shape \(63,\) .* \(64,\)"),
        (Splits(train=Pairs(), test=Pairs()), None, "several datasets, 'train', 'test'. Give one"),
        (Pairs(not_a_number), y, "item 7 of the dataset has values that are not finite"),
    ],
)
def test_bad_datasets(data, targets, message):
    clf = BayesianModuleClassifier(deep(), **(TINY | {"batch_size": 600}))
    with pytest.raises(ValueError, match=message):
        clf.fit(data, targets)
    assert not hasattr(clf, "posterior_")


@pytest.mark.parametrize("n_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_an_item_that_can_not_be_read_is_named_with_its_traceback(n_workers):
    """Also where a worker process has tried to read it."""
    clf = BayesianModuleClassifier(deep(), n_workers=n_workers, **(TINY | {"batch_size": 600}))
    with pytest.raises(
        RuntimeError, match=r"item 9 of the dataset (.|\n)*__getitem__(.|\n)*damaged"
    ):
        clf.fit(Pairs(broken={9}), y)


class AtOnce(Pairs):
    """It reads the items of a minibatch together, as datasets of Hugging Face do."""

    asked = 0

    def __getitems__(self, indices):
        self.asked += 1
        return [self[index] for index in indices]


def test_items_are_read_together_where_the_dataset_can():
    """The draws of the array, one call for each minibatch; before, none was read together.

    An error names the item as before.
    """
    clf = BayesianModuleClassifier(deep(), **(TINY | {"n_chains": 1})).fit(X, y)
    data = AtOnce()
    ours = clone(clf).fit(data, y)
    np.testing.assert_array_equal(ours.posterior_["0.weight"], clf.posterior_["0.weight"])
    assert data.asked >= ours.n_steps_
    with pytest.raises(RuntimeError, match="item 9 of the dataset could not be read"):
        clone(clf).set_params(batch_size=600).fit(AtOnce(broken={9}), y)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_items_of_tensors(kind):
    """Rows are the numbers of the tensors in float32."""
    rows = torch.from_numpy(X).to(kind)
    clf = BayesianModuleClassifier(deep(), **TINY).fit(rows.float().numpy(), y)
    ours = clone(clf).fit(Pairs(rows), y)
    np.testing.assert_array_equal(ours.posterior_["0.weight"], clf.posterior_["0.weight"])


class ItemsOnly(Dataset):
    """Targets are in the items, and in no attribute."""

    def __init__(self, pairs, longer=()):
        self.pairs, self.longer = pairs, longer

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        x, target = self.pairs[index]
        return x, np.full(1 + (index in self.longer), target)


@pytest.mark.parametrize("n_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ItemsOnly(Pairs(broken={9})), "item 9 of the dataset could not be read"),
        (
            ItemsOnly(Pairs(), {4}),
            r"item 4 of the dataset has a target of shape \(2,\), and item 0 one of",
        ),
    ],
)
def test_an_item_whose_target_can_not_be_read_is_named(data, message, n_workers):
    """Before, the error was that of the dataset, or NumPy's, without the item."""
    reg = BayesianModuleRegressor(nn.Linear(64, 1), n_workers=n_workers, **TINY)
    with pytest.raises((RuntimeError, ValueError), match=message):
        reg.fit(data)


def test_scores_take_the_targets_of_items():
    clf = BayesianModuleClassifier(deep(), **TINY).fit(Pairs())
    assert clf.score(Pairs()) == clf.score(X, y)
    reg = BayesianModuleRegressor(nn.Linear(64, 1), **TINY).fit(X, X[:, 20])
    assert reg.score(Pairs(X, X[:, 20])) == pytest.approx(reg.score(X, X[:, 20]), abs=1e-6)


class Transformed(Pairs):
    """The attribute ``y`` has what the items' targets are made of, as with a target_transform."""

    def __getitem__(self, index):
        x, target = super().__getitem__(index)
        return x, target % 2


def test_targets_are_those_of_the_items():
    """Before, an attribute was believed even if the items say otherwise."""
    module = nn.Linear(64, 2)
    clf = BayesianModuleClassifier(module, **TINY).fit(Transformed())
    ours = BayesianModuleClassifier(module, **TINY).fit(X, y % 2)
    np.testing.assert_array_equal(clf.predict_proba(X), ours.predict_proba(X))


def test_a_loader_is_refused_by_name():
    loader = torch.utils.data.DataLoader(Pairs(), batch_size=10)
    with pytest.raises(ValueError, match="X=DataLoader is not allowed: give its dataset"):
        BayesianModuleClassifier(deep(), **TINY).fit(loader)


@cases("data", [TensorDataset(torch.from_numpy(X), torch.from_numpy(y)), Columns(), Pairs()])
def test_other_estimators_refuse_datasets_by_name(data):
    """Before, the error was NumPy's, of items that have no shape."""
    message = f"X={type(data).__name__} is not allowed: only BayesianModuleClassifier and .* Give"
    for estimator in (BayesianMLPClassifier(), LatentDirichletAllocation()):
        with pytest.raises(ValueError, match=message):
            estimator.fit(data, y)


def test_what_needs_all_rows_at_once_refuses_datasets():
    """Before, X seemed to be empty."""
    clf = BayesianModuleClassifier(deep(), **TINY).fit(X, y)
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    for call in (clf.distill, partial(fgsm, clf, eps=0.1)):
        with pytest.raises(ValueError, match="X=TensorDataset is not allowed here, .* Give an arr"):
            call(data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"standardize": True}, "standardize=True is not allowed with a dataset"),
        ({"n_workers": -1}, "n_workers=-1 is not allowed"),
    ],
)
def test_parameters_that_datasets_do_not_allow(changes, message):
    with pytest.raises(ValueError, match=message):
        BayesianModuleClassifier(deep(), **TINY, **changes).fit(Pairs())


def test_streams_of_datasets_refuse_labels_that_they_do_not_know():
    clf = BayesianModuleClassifier(deep(), **TINY)
    clf.partial_fit(Pairs(X[:100], y[:100]), classes=np.arange(10))
    with pytest.raises(ValueError, match=r"y has labels \[11\] that are not in classes"):
        clf.partial_fit(Pairs(X[:100], np.full(100, 11)))


@pytest.mark.parametrize("kind", [BayesianModuleClassifier, BayesianModuleRegressor])
def test_streams_of_datasets_have_their_own_targets(kind):
    """As in ``fit``: the same draws as with the targets given, and an error for arrays alone."""
    outputs = 10 if kind is BayesianModuleClassifier else 1
    given, own = (kind(deep(outputs), **TINY) for _ in range(2))
    for rows in (slice(0, 100), slice(100, 200)):
        own.partial_fit(Pairs(X[rows], y[rows]))
        given.partial_fit(Pairs(X[rows], y[rows]), y[rows])
    assert_same_draws(own, given)
    with pytest.raises(ValueError, match="requires y to be passed"):
        own.partial_fit(X[:100])
