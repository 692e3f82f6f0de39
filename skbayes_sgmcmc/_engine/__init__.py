"""From settings to draws.

A fit passes these modules in this order:

1. ``settings``: the parameters that all estimators share, and the checks on them.
2. ``problem``: what is sampled: a model with its rows, and earlier chains that continue.
3. ``recipe``: how, with every "auto" resolved: sampler, target, minibatches, step size;
   ``lengths``: the plan of the steps; ``combinations``: what is not allowed together.
4. ``run``: the path itself, which combines the results of all chains.
5. ``target``: the density to sample, with the factor N/n, control variates and coordinates.
6. ``accelerators``: what ``compiled`` means: the list of faster ways to take the same steps.
7. ``jobs``: groups of chains: their starts, checkpoints (``checkpoint``) and interrupts.
8. ``chains``: the one loop over steps.

``streams`` takes this path for a part of a stream and remembers what later parts need, ``sample``
for a user's log density or model, which ``own_models`` looks at.

Terms: the *target* is the density that a run samples. A *chain* moves towards it in *steps*, and
some of its positions are kept as *draws*. A *group* is a set of chains that advance together as one
batch, in this process or in a worker. The *posterior* is the target of an estimator's model, which
the draws represent.
"""
