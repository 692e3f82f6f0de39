"""What the long NUTS runs of the reference files share: the run, its moments, and the file."""

import sys
import time
from pathlib import Path

import jax
import numpy as np
import numpyro
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS

numpyro.enable_x64()

N_CHAINS = 4


def drawn(kernel, seed, *args, n_warmup, n_draws, **run):
    """Draws (chains, draws, ...) by name, and what the run was like, as text."""
    mcmc = MCMC(kernel, num_warmup=n_warmup, num_samples=n_draws, num_chains=N_CHAINS,
                chain_method="sequential", progress_bar=False)  # fmt: skip
    started = time.perf_counter()
    mcmc.run(jax.random.PRNGKey(seed), *args, extra_fields=("num_steps", "diverging"), **run)
    draws = {k: np.asarray(v) for k, v in mcmc.get_samples(group_by_chain=True).items()}
    extra, seconds = mcmc.get_extra_fields(), time.perf_counter() - started
    return draws, (
        f"{np.mean(extra['num_steps']):.0f} steps a draw, {np.sum(extra['diverging'])} divergent, "
        f"{seconds:.0f} s"
    )


def of_model(model, accept):
    """NUTS for a model with few parameters."""
    start = numpyro.infer.init_to_uniform(radius=0.3)
    return NUTS(model, dense_mass=True, target_accept_prob=accept, init_strategy=start)


def moments(parts):
    """Means, sds and the MCSEs of the means over chains and draws, and the largest R-hat."""
    found, r_hat = {}, 0.0
    for part, x in parts.items():
        mean, sd = x.mean((0, 1)), x.std((0, 1), ddof=1)
        mcse = sd / np.sqrt(effective_sample_size(np.concatenate(np.split(x, 2, axis=1))))
        found |= {f"{part}_mean": mean, f"{part}_sd": sd, f"{part}_mcse": mcse}
        r_hat = max(r_hat, float(np.max(split_gelman_rubin(x))))
    worst = max(float(np.max(found[f"{part}_mcse"] / found[f"{part}_sd"])) for part in parts)
    return found | {"max_rhat": r_hat}, f"max R-hat {r_hat:.4f}, MCSE {worst:.4f} sd"


def update(output, sets, make):
    """Make the sets that the command line names, or all; the file is updated after each."""
    saved = dict(np.load(output)) if Path(output).exists() else {}
    for name in sys.argv[1:] or sets:
        found = make(name)
        saved.update({f"{name}/{key}": np.asarray(value) for key, value in found.items()})
        np.savez_compressed(output, **saved)
