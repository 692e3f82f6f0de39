"""What a sampler's step costs besides its gradients, and what more chains cost.

    SKBAYES_DATA=folder OMP_NUM_THREADS=1 python examples/benchmarks/step_cost.py

The network is that of the regressor's defaults, 5-16-16-16-16-2 with noise that depends on x and
learned scales, on the 1,202 training rows of airfoil in float32. The gradient is the one that the
sampler calls, of all chains together. Both are timed in turns, in processor time; the smallest of
the repeats counts.
"""

import copy
import time

import torch
from _chains import KeptChains
from _common import markdown_table, parse_args, write_results
from _tabular_data import load_split

from skbayes_sgmcmc import BayesianMLPRegressor

#: gradients of a step with the integrator of step_size="auto"
SAMPLERS = {"sgld": 1, "psgld": 1, "sghmc": 1, "sgnht": 1, "msgnht": 1, "mclmc": 2}
#: samplers whose steps are also compiled
COMPILED = ("mclmc",)
CHAINS = (1, 4, 8)
STEP_BOUND, COMPILED_BOUND, CHAINS_BOUND = 1.15, 1.1, 3.0
BODY = """
The network is that of the regressor's defaults, 5-16-16-16-16-2 with noise that depends on x and
learned scales, on the {n_rows} training rows of airfoil in float32 ({n_parameters} parameters),
with all rows in every step and one thread. A step is one of the loop of a fit after its burn-in,
with its random numbers and, every 50 steps, new scales; its gradients are as many calls of the
function that the sampler calls. Times are in ms of processor time, the smallest of {repeats}
blocks of {length} steps or gradients, which take turns.

## A step and its gradients, four chains

{steps}

Target: a step takes at most 1.15 times its gradients, and 1.1 times if it is compiled. {verdict}
Steps are torch's operations (`compiled=False`) except where "compiled" is said: those between two
draws of the scales are one call then, and so is each of the gradients that they are compared with.
Gradients on their own find everything that they need in the processor's caches; between the other
operations of a step the same ones take some 5% more time.

## More chains

{chains}

Target: eight chains take at most three times as long as one. {verdict_chains}
"""


class Timed(KeptChains):
    """A run that is kept after its burn-in, to time its steps and its gradients."""

    def __init__(self, sampler, n_chains, data, compiled):
        regressor = BayesianMLPRegressor(
            sampler=sampler, n_chains=n_chains, n_draws=4, thinning=5, burn_in=20,
            batch_size=len(data[0]), init="random", random_state=0, compiled=compiled,
        )  # fmt: skip
        super().__init__(regressor, *data)
        chains = copy.copy(self.chains)
        if chains.engine.block is not None:  # which leaves single gradients to torch
            model = chains.target.model.with_kernel("perceptron")
            chains.target = chains.target.with_model(model)
        chains._set_up()
        self.evaluator = chains.evaluator
        self.evaluator.batch = self.chains.evaluator.batch

    def steps(self, length):
        start = time.process_time()
        self.take(length)
        return (time.process_time() - start) / length

    @torch.no_grad()
    def gradients(self, length, with_value):
        evaluator, phi = self.evaluator, self.chains.phi
        call = evaluator.value_and_gradient if with_value else evaluator.gradient
        start = time.process_time()
        for _ in range(length):
            call(phi)
        return (time.process_time() - start) / length


def measure(sampler, n_chains, data, args, compiled=False):
    """Seconds of a step and of its gradients."""
    timed = Timed(sampler, n_chains, data, compiled)
    step, plain, valued = [], [], []
    for _ in range(args.repeats):
        step.append(timed.steps(args.length))
        plain.append(timed.gradients(args.length, False))
        if sampler == "mclmc":  # one of its two gradients comes with the potential
            valued.append(timed.gradients(args.length, True))
    return min(step), min(plain) + (min(valued) if valued else 0.0), timed.n_parameters


def main():
    args = parse_args(__doc__, seeds=1, numbers={"repeats": (15, 2), "length": (100, 10)})
    X, y, _, _ = load_split("airfoil", 0)
    rows, ratios = [], {}
    kinds = [(sampler, False) for sampler in SAMPLERS] + [(sampler, True) for sampler in COMPILED]
    for sampler, compiled in kinds:
        step, gradient, n_parameters = measure(sampler, 4, (X, y), args, compiled)
        name = f"{sampler}, compiled" if compiled else sampler
        ratios[name] = step / gradient
        rows.append([name, SAMPLERS[sampler], f"{1e3 * gradient:.2f}", f"{1e3 * step:.2f}",
                     f"{step / gradient:.2f}"])  # fmt: skip
        print(rows[-1], flush=True)
    by_chains, more = {}, []
    for n_chains in CHAINS:
        step, gradient, _ = measure("mclmc", n_chains, (X, y), args)
        by_chains[n_chains] = step
        more.append([n_chains, f"{1e3 * gradient:.2f}", f"{1e3 * step:.2f}",
                     f"{step / by_chains[1]:.2f}"])  # fmt: skip
        print(more[-1], flush=True)
    over = [
        name
        for name, ratio in ratios.items()
        if ratio > (COMPILED_BOUND if "compiled" in name else STEP_BOUND)
    ]
    ratio = by_chains[8] / by_chains[1]
    header = ["gradients, ms", "step, ms"]
    body = BODY.format(
        n_rows=f"{len(X):,}",
        n_parameters=n_parameters,
        repeats=args.repeats,
        length=args.length,
        steps=markdown_table(["sampler", "gradients", *header, "ratio"], rows),
        verdict=f"Missed by: {'; '.join(over)}." if over else "Met by all.",
        chains=markdown_table(["chains, MCLMC", *header, "times one chain"], more),
        verdict_chains=f"{'Met' if ratio <= CHAINS_BOUND else 'Missed'}: {ratio:.2f}.",
    )
    write_results(args, "step_cost", "The cost of a step", body, spread="Seed 0.")


if __name__ == "__main__":
    main()
