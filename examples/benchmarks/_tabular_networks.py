"""Peers of ``tabular.py`` that are trained here with torch: deep ensembles, dropout, Laplace.

All are the same perceptrons, trained by Adam on minibatches with early stopping. The members of an
ensemble are trained side by side as batched matrices, each with its own start, its own minibatches
and its own held-out rows. In regression the networks have two outputs, mean and sd of a normal.
"""

import itertools

import numpy as np
import torch
from _tabular_peers import MIN_SD, bounded
from _tabular_worker import NormalMixture
from torch.nn import functional

VALIDATION, PATIENCE, RATE = 0.15, 30, 2e-3
SMALLEST_BATCH, LARGEST_BATCH = 32, 256


class Networks:
    """``n_members`` perceptrons of ReLU units as lists of batched weights and biases."""

    def __init__(self, sizes, n_members, dropout, generator):
        self.dropout, self.generator, self.held_out = dropout, generator, None
        self.parameters = []
        for n_in, n_out in itertools.pairwise(sizes):
            bound = (6.0 / n_in) ** 0.5 if n_out != sizes[-1] else n_in**-0.5
            weight = torch.rand(n_members, n_in, n_out, generator=generator) * 2.0 - 1.0
            self.parameters += [bound * weight, torch.zeros(n_members, 1, n_out)]
        for parameter in self.parameters:
            parameter.requires_grad_()

    def __call__(self, x, random=False):
        """Outputs (members, rows, outputs); with ``random`` units are dropped."""
        weights, biases = self.parameters[::2], self.parameters[1::2]
        for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if layer < len(weights) - 1:
                x = x.relu()
                if random and self.dropout:
                    keep = torch.rand(x.shape, generator=self.generator) >= self.dropout
                    x = x * keep / (1.0 - self.dropout)
        return x


def normal_loss(outputs, y):
    """Negative log density of each member and row."""
    mean, sd = outputs[..., 0], functional.softplus(outputs[..., 1]) + MIN_SD
    return 0.5 * ((y - mean) / sd) ** 2 + sd.log() + 0.5 * np.log(2.0 * np.pi)


def squared_loss(outputs, y):
    return (outputs[..., 0] - y) ** 2


def class_loss(outputs, y):
    return functional.cross_entropy(outputs.transpose(1, 2), y, reduction="none")


def trained(X, y, seed, n_outputs, loss, *, hidden, max_epochs, n_members=1, dropout=0.0):
    """Networks at the parameters of each member's best epoch."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.from_numpy(X).float(), torch.from_numpy(y)
    y = y.float() if y.is_floating_point() else y.long()
    n_held_out = max(1, int(VALIDATION * len(x)))
    orders = torch.stack([torch.randperm(len(x), generator=generator) for _ in range(n_members)])
    held_out, rows = orders[:, :n_held_out], orders[:, n_held_out:]
    n_train = rows.shape[1]
    batch = min(max(SMALLEST_BATCH, n_train // 50), LARGEST_BATCH)
    networks = Networks((X.shape[1], *hidden, n_outputs), n_members, dropout, generator)
    networks.held_out = held_out
    optimizer = torch.optim.Adam(networks.parameters, lr=RATE, foreach=True)
    best = [parameter.detach().clone() for parameter in networks.parameters]
    lowest = torch.full((n_members,), torch.inf)
    waited = torch.zeros(n_members, dtype=torch.long)
    for _ in range(max_epochs):
        order = torch.argsort(torch.rand(n_members, n_train, generator=generator), dim=1)
        shuffled = torch.gather(rows, 1, order)
        for start in range(0, n_train - n_train % batch or n_train, batch):
            chosen = shuffled[:, start : start + batch]
            optimizer.zero_grad()
            losses = loss(networks(x[chosen], random=True), y[chosen])
            losses.mean(dim=1).sum().backward()
            optimizer.step()
        with torch.no_grad():
            found = loss(networks(x[held_out]), y[held_out]).mean(dim=1)
            better = (found < lowest) & (waited < PATIENCE)
            lowest = torch.where(better, found, lowest)
            waited = torch.where(better, 0, waited + 1)
            for kept, parameter in zip(best, networks.parameters, strict=True):
                kept[better] = parameter[better]
        if (waited >= PATIENCE).all():
            break
    with torch.no_grad():
        for kept, parameter in zip(best, networks.parameters, strict=True):
            parameter.copy_(kept)
    return networks


def outputs_of(networks, X, n_random=0):
    """Outputs (networks, rows, outputs) of all members, or of ``n_random`` random passes."""
    x = torch.from_numpy(X).float()
    with torch.no_grad():
        passes = [networks(x.expand(len(networks.parameters[0]), *x.shape), n_random > 0)
                  for _ in range(max(n_random, 1))]  # fmt: skip
    return torch.cat(passes).double()


def ensemble_regression(X, y, seed, n_random=0, **options):
    networks = trained(X, y, seed, 2, normal_loss, **options)

    def predict(X):
        found = outputs_of(networks, X, n_random)
        sds = functional.softplus(found[..., 1]) + MIN_SD
        return NormalMixture(found[..., 0].numpy(), sds.numpy())

    return predict


def ensemble_classification(X, y, seed, n_random=0, **options):
    networks = trained(X, y, seed, int(y.max()) + 1, class_loss, **options)

    def predict(X):
        found = outputs_of(networks, X, n_random)
        return bounded(found.softmax(dim=-1).mean(dim=0).numpy())

    return predict


def laplace(X, y, seed, likelihood, n_outputs, loss, options):
    """laplace-torch's posterior of the last layer.

    Prior precision and noise maximise the marginal likelihood in regression; the prior precision
    of classification is the best of a grid for the held-out rows.
    """
    from laplace import Laplace

    networks = trained(X, y, seed, n_outputs, loss, **options)
    layers = []
    for weight, bias in zip(networks.parameters[::2], networks.parameters[1::2], strict=True):
        layer = torch.nn.Linear(*weight.shape[1:])
        layer.weight.data.copy_(weight[0].detach().T)
        layer.bias.data.copy_(bias[0, 0].detach())
        layers += [layer, torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers[:-1])
    targets = torch.from_numpy(y)
    targets = targets.float()[:, None] if likelihood == "regression" else targets.long()
    data = torch.utils.data.TensorDataset(torch.from_numpy(X).float(), targets)
    found = Laplace(net, likelihood, subset_of_weights="last_layer", hessian_structure="full")
    found.fit(torch.utils.data.DataLoader(data, batch_size=1000))
    if likelihood == "classification":
        rows = torch.utils.data.Subset(data, networks.held_out[0].tolist())
        loader = torch.utils.data.DataLoader(rows, batch_size=1000)
        found.optimize_prior_precision(method="gridsearch", val_loader=loader)
        return found
    logs = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.Adam([logs], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        prior_precision, sigma = logs.exp()
        (-found.log_marginal_likelihood(prior_precision, sigma)).backward()
        optimizer.step()
    return found


def laplace_regression(X, y, seed, **options):
    found = laplace(X, y, seed, "regression", 1, squared_loss, options)

    def predict(X):
        mean, variance = found(torch.from_numpy(X).float())
        noise = found.sigma_noise.detach().double().item()
        variance = variance.detach().double().reshape(-1) + noise**2
        return NormalMixture(mean.detach().reshape(-1).numpy(), variance.sqrt().numpy())

    return predict


def laplace_classification(X, y, seed, **options):
    found = laplace(X, y, seed, "classification", int(y.max()) + 1, class_loss, options)

    def predict(X):
        proba = found(torch.from_numpy(X).float(), link_approx="probit")
        return bounded(proba.detach().double().numpy())

    return predict
