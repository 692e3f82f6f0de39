"""From settings to draws.

A fit passes these modules in this order:

1. ``settings``: the parameters that all estimators share, and the checks on them.
2. ``run``: the path itself. It calls the other modules and combines their results.
3. ``auto``: what "auto" means: centre, coordinates, step size, minibatch, lengths;
   ``lengths``: the lengths within ``max_steps``.
4. ``target``: the density to sample, with the factor N/n, control variates and coordinates.
5. ``accelerators``: what ``compiled`` means: the list of faster ways to take the same steps.
6. ``jobs``: groups of chains: their starts, checkpoints (``checkpoint``) and interrupts.
7. ``chains``: the one loop over steps.

``sample`` takes the same path for a user's log density or model.

Terms: the *target* is the density that a run samples. A *chain* moves towards it in *steps*, and
some of its positions are kept as *draws*. A *group* is a set of chains that advance together as one
batch, in this process or in a worker. The *posterior* is the target of an estimator's model, which
the draws represent.
"""
