"""The chains of a finished fit, to time steps that go on from there."""

import warnings

import torch

from skbayes_sgmcmc._engine.chains import Chains


class KeptChains:
    """The chains of the fit of an estimator, in the state in which it ended."""

    def __init__(self, estimator, X, y):
        kept, run = [], Chains.run

        def keep(self, on_chunk=None):
            kept.append(self)
            return run(self, on_chunk)

        Chains.run = keep
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # too short to mix, on purpose
                estimator.fit(X, y)
        finally:
            Chains.run = run
        self.chains = kept[0]

    @property
    def n_parameters(self):
        return self.chains.phi.shape[1]

    @torch.no_grad()
    def take(self, count):
        """Take steps of the fit's loop."""
        eta, first = self.chains.cursor.last_eta, self.chains.plan.n_steps
        self.chains._loop(first, [eta] * count, [1.0] * count, [False] * count)
