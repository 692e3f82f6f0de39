"""From settings to draws.

A fit passes these modules in this order:

1. ``settings``: the parameters that all estimators share, and the checks on them.
2. ``run``: the path itself. It calls the others and combines what they return.
3. ``auto``: what "auto" means: centre, coordinates, step size, minibatch, lengths.
4. ``target``: the density to sample, with the factor N/n, control variates and coordinates.
5. ``jobs``: groups of chains: their starts, checkpoints (``checkpoint``) and interrupts.
6. ``accelerators``: compiled code and CUDA graphs that replace parts of the next.
7. ``chains``: the one loop over steps.

``sample`` is the same path for a log density or model of the user's.
"""
