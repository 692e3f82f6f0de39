"""Descriptions of parameters and attributes that several estimators share, for their docstrings.

In a docstring, a line such as ``{checkpoint} {n_jobs}`` stands for such entries, with their names
and types. Lines below it go on with what is the estimator's own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from textwrap import indent
from typing import TypeVar

Kind = TypeVar("Kind", bound=type)


def described(known: Mapping[str, str]) -> Callable[[Kind], Kind]:
    """Put shared entries, by their names, in the docstring of a class.

    Its signature has the order of the docstring: parameters of base classes would come first.
    """

    def complete(kind: Kind) -> Kind:
        def entries(line: re.Match[str]) -> str:
            names = re.findall("{(.+?)}", line[0])
            return "\n".join(indent(known[name], line[1]) for name in names)

        def place(parameter: inspect.Parameter) -> int:
            found = re.search(rf"\b{parameter.name} : ", kind.__doc__ or "")
            return found.start() if found else -1  # self

        if kind.__doc__:  # there is none with python -OO
            kind.__doc__ = re.sub(r"^( *)\{[\w, {}]+\}$", entries, kind.__doc__, flags=re.M)
            init = vars(kind)["__init__"]
            given = inspect.signature(init)
            parameters = sorted(given.parameters.values(), key=place)
            init.__signature__ = given.replace(parameters=parameters)
        return kind

    return complete


def _entries(section: str) -> dict[str, str]:
    """Entries of a section of a docstring, by their names."""
    found = re.findall(r"^\w.*(?:\n .*)+", section, flags=re.M)
    return {re.split(" : |\n", text)[0]: text for text in found}


#: of any estimator that samples
SHARED = _entries(r"""
class_weight : dict, "balanced" or None, default=None
    Weight of each class, as in scikit-learn: the exponent of the likelihood of its rows.
    ``partial_fit`` refuses "balanced", since it does not know later rows.
categorical_features : "from_dtype", array of str, int or bool, or None, default="from_dtype"
    Columns of X that hold categories, by their names or indices, or a boolean for each column.
    "from_dtype": those columns of tables that are categories, strings, or objects with strings.
    Each category becomes an indicator, and gaps are allowed in all columns of tables (see
    :doc:`tables of mixed columns </tables>`).
integrator : str, default="auto"
    Integrator that discretises the sampler's dynamics: "euler", "leimkuhler_matthews" (SGLD),
    "splitting", "baoab", "aboba" (second-order samplers) or "metropolis" (MALA). "auto": the
    sampler's most accurate integrator, or "euler" if ``step_size`` is a number.
n_draws : "auto" or int, default="auto"
    Number of draws kept per chain. "auto": 100, or fewer if they would need more than 1 GiB.
max_steps : int or None, default=None
    Bound on the steps of each chain in ``fit``, which makes a fit shorter. Lengths that are
    "auto" shrink in proportion; given ones that take more steps are refused. None: no bound.
    ``partial_fit`` takes one pass over its rows, and ignores ``burn_in``, ``thinning`` and
    ``max_steps``.
temperature : float or Schedule, default=1.0
    Temperature T of the target exp(-U/T): 1 samples the posterior, 0 is an optimiser.
total_samples : float or None, default=None
    Number of rows N of the whole stream in ``partial_fit``. None: the rows seen so far.
warm_start : bool, default=False
    If True, the next ``fit`` continues from the last state of the chains.
device : str, default="auto"
    Torch device, such as "cpu" or "cuda". "auto" is CUDA for fits that are large enough to be
    faster there, otherwise the CPU; see ``device_``.
dtype : {"auto", "float32", "float64"}, default="auto"
    Precision of the sampling. "auto": float64 on a CPU for up to 100,000 parameters, otherwise
    float32.
storage : Storage or None, default=None
    Precision and location of the stored draws, such as ``Storage(dtype="bfloat16",
    dir="draws")``. None: in memory, in the precision of the sampling.
checkpoint : path or None, default=None
    File that lets an interrupted fit resume if it is called again with the same data and
    parameters. On a CPU, the draws are then bit-identical to those of an uninterrupted fit. The
    file is kept after the fit. With ``n_jobs``, each group of chains has a file of its own:
    "fit.0-1.npz" beside "fit.npz" for the chains 0 and 1.
n_jobs : int or None, default=None
    Number of groups of chains that run in parallel through joblib, in processes that take
    seconds to start: fits of a minute or more gain by it. None: a single group.
random_state : int, RandomState or None, default=None
    Seed. Chain c has the same random numbers for every value of ``n_chains`` and ``n_jobs``.
verbose : int, default=0
    If positive, print steps and the time left. R-hat or the loss comes with them.
    Scikit-learn's callbacks work, too.
n_chains_, n_draws_ : int
    Number of chains in ``posterior_`` and number of draws of each chain.
n_steps_ : int
    Number of steps of each chain in the last call of ``fit`` or ``partial_fit``.
step_size_ : float
    Step size eta of the last step.
batch_size_ : int
    Number of rows in a minibatch.
compiled_ : tuple of str
    Names of the accelerators used in the last call, such as ("fused_steps",); () if none.
not_compiled_ : dict of str to str
    Why each of the other accelerators was not used, by name; {} with ``compiled=False``.
sampling_threshold_ : dict or None
    Noise at up to 50 steps. "step": their numbers. "noise_ratio": alpha_t, the ratio of the
    gradient noise to the injected noise in the worst direction; chains sample the posterior
    where it is far below 1. "gradient_noise" (smallest and largest coordinate) and
    "injected_noise": variances, for
    :class:`~skbayes_sgmcmc.inspection.NoisePhaseDisplay`. None after ``partial_fit``, with
    batch norms, and if the sampler injects no noise of this kind.
device_ : str
    Device of the last call: as given, or what "auto" has chosen.
n_features_in_ : int
    Number of features seen in ``fit``.
feature_names_in_ : array of shape ``(n_features_in_,)``
    Names of the features, if X had string column names.
""")

#: of networks, in the place of the former
NETWORK = _entries(r"""
activation : {"relu", "tanh", "logistic"}, default="relu"
    Activation of the hidden layers.
prune : None, float or Pruning, default=None
    Pruning of the smallest weights during sampling: the final fraction of zeros, or a
    :class:`Pruning` that also sets the schedule and the layers. None: no pruning.
standardize : bool, default=True
    If True, the network sees features scaled to mean 0 and variance 1. Features of one unit,
    such as pixels or yes and no, are divided by one number: the root mean square of their
    standard deviations. They have one unit if all their values are among at most 256, and half
    of the features have the smallest and the largest of them. So have at least ten features that
    are mostly zero, with other values of one size, such as counts of words.
augment : callable or None, default=None
    Data augmentation: ``augment(x, rng)`` returns randomly changed inputs of a minibatch, with
    the same shape, ``(..., *shape of a row)``, and device. See
    :mod:`skbayes_sgmcmc.augmentation`.
sampler : str or Sampler, default="psgld"
    Sampler, as a name or as an object with parameters such as ``PSGLD(adapt="always")``. Names:
    "psgld", "sgld", "mclmc", "sghmc", "sgnht" and "msgnht".
step_size : "auto", float or Schedule, default="auto"
    Step size eta, which multiplies the gradient of the mean potential, like a learning rate.
    "auto": 0.002 for pSGLD; with the other samplers, each chain finds its own in the burn-in.
batch_size : "auto" or int, default="auto"
    Number of rows in a minibatch, at most all rows. "auto": all rows if X has at most 32,768
    values, otherwise 100.
n_chains : int, default=4
    Number of chains. Each chain has its own starting point. Predictions average over all
    chains.
chain_method : {"auto", "vectorized", "sequential"}, default="auto"
    Whether the chains take each step together ("vectorized") or one after the other
    ("sequential"). The draws are the same up to rounding. "auto": together, as one batched
    computation.
burn_in : "auto" or int, default="auto"
    Number of steps before the first draw in ``fit``. "auto": ten passes over the rows, but at
    least 3000 steps (MCLMC with minibatches: 7000); half as many as the draws take if
    ``step_size`` is a number. If ``thinning`` is "auto", too, and chains of MCLMC with all rows in
    every step have not reached the posterior with these, three times as many follow, and all draws
    come from those.
thinning : "auto", int or MixingDistance, default="auto"
    Number of steps between two draws of a chain in ``fit``. "auto": such that the draws take as
    many steps as ``burn_in="auto"`` would; a tenth of a pass, at most 100, if ``step_size`` is
    a number.
max_steps : int or None, default=None
    Bound on the steps of each chain in ``fit``, which makes a fit shorter. Lengths that are
    "auto" shrink in proportion, and no steps follow that would exceed it; given ones that take
    more steps are refused. The descents that chains of MCLMC and MALA start with compute at
    most a tenth as many gradients of rows. None: no bound. ``partial_fit`` takes one pass over
    its rows, and ignores ``burn_in``, ``thinning`` and ``max_steps``.
init : "auto", "random", "map" or array, default="auto"
    Starting points of the chains. "random": normal weights with He's scaling. "map": as
    "random", and the first half of the burn-in runs at temperature 0, as an optimiser. An array
    is broadcast to (n_chains, n_parameters). "auto": "map" with ``step_size="auto"``, otherwise
    "random".
validation_fraction : float, default=0.15
    Share of the rows, 2,000 at most, that stop the descent that chains of MCLMC and MALA start
    with: it ends when their likelihood no longer improves. Every chain has its own, and samples
    the posterior of all rows afterwards. With fewer than 20 different rows, and other samplers
    or starts, there are none.
calibrate : {"auto", True, False}, default="auto"
    Whether ``predict_proba`` is calibrated. The average over draws of a network is often too
    unsure. After the fit, two or three runs with an eighth of its steps each leave out a fifth
    of the rows, and predict it. Short fits have fewer and longer runs, and all together take at
    most half of the fit's steps. The power that probabilities are raised to, before they are
    normalised, is the most probable one given these rows. The draws, and what other methods
    make of them, stay as they are. "auto": with at least 50 rows, if X takes at most 512 MiB,
    ``step_size="auto"`` and ``temperature=1``. True copies four fifths of any X.
device : str, default="auto"
    Torch device, such as "cpu" or "cuda". "auto" is CUDA for fits and for predictions that are
    large enough to be faster there, otherwise the CPU; see ``device_``. Predictions use a given
    device, too, or the CPU if it is missing when a fitted model is loaded.
precision : {"full", "bfloat16"}, default="full"
    Precision of the network's matrix products in gradients. "full" is that of ``dtype``.
    "bfloat16" is faster on some hardware; parameters, noise, updates, likelihood, draws and
    predictions are then in float32.
classes_ : array of shape (n_classes,), or list of arrays
    Class labels; with several targets, a list with those of each, or the numbers of the columns
    of y if all labels are 0 and 1.
calibration_power_ : float
    Power of the average over the draws in ``predict_proba``: 1 if it is not calibrated, larger
    if the average is too unsure.
""")

#: of multilayer perceptrons, in the place of those of networks
PERCEPTRON = _entries(r"""
prior : {"normal", "laplace"} or Prior, default="normal"
    Prior on weights and biases.
prior_scale : str, LearnedScale, float or sequence of float, default="auto"
    Standard deviation of the normal prior, or scale b of the Laplace prior: one number, or one
    for each layer. "fan_in": sqrt(2 / fan-in) for hidden weights, 4 / sqrt(fan-in) for output
    weights (1 / sqrt(fan-in) in regression) and 1 for biases. The prior of the function is then
    independent of the width. "learned": the scales of the normal prior are sampled, one for each
    input feature and each other block of weights or biases (see
    :class:`~skbayes_sgmcmc.priors.LearnedScale`). "auto": "learned" with the normal prior, except
    at temperatures between 0 and 1, otherwise "fan_in".
sampler : str or Sampler, default="auto"
    Sampler, as a name or as an object with parameters such as ``PSGLD(adapt="always")``. Names:
    "mclmc", "psgld", "sgld", "sghmc", "sgnht" and "msgnht". "auto": "mclmc" if
    ``step_size="auto"`` and the network has at most 2,500 parameters, or at most 10,000 and an
    eighth of the number of rows, or in regression at most 67 million rows times parameters;
    otherwise, and with a ``batch_size`` of some of few rows, "psgld".
batch_size : "auto" or int, default="auto"
    Number of rows in a minibatch, at most all rows. "auto": all rows if X has at most 32,768
    values, and otherwise 100. With MCLMC, 250 if there are eight rows for each of at most
    10,000 parameters, and 2.5 million rows times parameters (for at most 2,500 parameters, 17
    million are enough); otherwise all rows.
compiled : "auto" or bool, default="auto"
    Whether to use the compiled code of the extra ``fast`` where it applies: gradients of
    perceptrons of up to 128 units a layer and whole steps of MCLMC, and SGLD and pSGLD with the
    Euler integrator, in long runs on a CPU. The latter have a random number generator of their
    own, so the same seed gives different draws. On a GPU, whole steps are recorded and replayed
    (CUDA graphs). Predictions of many rows in single precision are compiled on a CPU unless it is
    False.
dtype : {"auto", "float32", "float64"}, default="auto"
    Precision of the sampling. "auto": float32, which takes half the time of float64.
""")

#: of torch modules, in the place of those of networks
MODULE = _entries(r"""
input_shape : tuple of int or None, default=None
    Shape of the rows that the module gets, such as (channels, height, width). Rows of X may
    be flat or have this shape. None: rows as they are. X may be an array or a tensor of any
    rank, or a tuple or a mapping of these, which are then the module's arguments. Integers and
    booleans stay such if the module takes them.
sample_parameters : str, sequence of str or callable, default="trainable"
    Parameters of the module that are sampled; the others keep their values. "trainable": those
    with ``requires_grad``. "all": all of them. "last_layer": those of the linear layer that is
    called last. Otherwise names of parameters or layers, or patterns such as "head.*", one or
    several; or a callable of name and parameter that returns True for those to sample. Batch
    norms that are not sampled use their running statistics.
prior : {"normal", "laplace", "spike_slab"}, Prior or SpikeSlab, default="normal"
    Prior on all weights and biases. A :class:`SpikeSlab` is the prior on the weights of the
    layers that it names; biases and other layers then have a normal prior. "spike_slab" means
    ``SpikeSlab()``.
prior_scale : str, LearnedScale, float or sequence of float, default="auto"
    Scale of the prior, as for :class:`BayesianMLPClassifier`. A sequence has one number for
    each sampled matrix or kernel. "auto": "learned" with a normal prior and without pruning,
    except at temperatures between 0 and 1, otherwise "fan_in". If a last layer is sampled as a
    linear model of features, "auto" with a normal prior is the one number that makes the data
    most likely, ``prior_scale_``.
prior_center : {0, "module"}, default=0
    Centre of the prior. "module": the weights of the module that was given. Not allowed with a
    spike-and-slab prior or pruning.
n_workers : int, default=0
    Number of processes that fetch the items of a dataset in advance, as in
    ``torch.utils.data.DataLoader``. 0: they are fetched in this process.
chain_method : {"auto", "vectorized", "sequential"}, default="auto"
    Whether the chains take each step together ("vectorized") or one after the other
    ("sequential"). The draws are the same up to rounding. "auto": together, with
    ``torch.func.vmap``, if the module has at most 10,000 parameters (1,000,000 on a GPU) and
    vmap supports it.
init : "auto", "module", "random", "map" or array, default="auto"
    Starting points of the chains. "module": the weights of the module plus normal numbers with
    a standard deviation of 1% of the root mean square of each tensor. "random": normal weights
    with He's scaling. "map": as "random", and the first half of the burn-in runs at temperature
    0, as an optimiser; so it does for "module" with ``step_size="auto"``. An array is broadcast
    to (n_chains, n_parameters). "auto": "module" if ``module`` is a module; otherwise "map"
    with ``step_size="auto"``, else "random". With a spike-and-slab prior, "auto" is "random".
compiled : "auto" or bool, default="auto"
    Whether to use the compiled code of the extra ``fast`` where it applies: SGLD and pSGLD with
    the Euler integrator, in long runs on a CPU. It has its own random number generator, so the
    same seed gives different draws. On a GPU, True records and replays whole
    steps (CUDA graphs).
posterior_ : PosteriorSamples
    Draws of the sampled parameters, each of shape ``(n_chains, n_draws, *shape)``, by their
    names in the module.
standardize : bool, default=False
    If True, the module sees features scaled to mean 0 and variance 1.
sigma_, delta_, sparsity_, n_effective_parameters_
    Only with a spike-and-slab prior or pruning; see :class:`SparseBayesianRegressor`.
prior_scale_ : float
    Standard deviation of the prior of a last layer's weights, if "auto" has estimated it.
n_features_in_ : int
    Number of values in a row.
""")

#: of sparse networks, in the place of those of networks
SPARSE = _entries(r"""
hidden_layer_sizes : int or sequence of int, default=()
    Number of units of each hidden layer. An empty sequence gives a linear model.
prior_scale : "fan_in", float or sequence of float, default="fan_in"
    Standard deviation of the normal prior on biases and on layers that are not sparse.
    "fan_in": as for :class:`BayesianMLPClassifier`.
prior : "spike_slab" or SpikeSlab, default="spike_slab"
    Prior on the weights of the layers that it names, with its hyperparameters and the update of
    its latent variables. Biases and other layers have a normal prior. "spike_slab" means
    ``SpikeSlab()``.
step_size : "auto", float or Schedule, default="auto"
    Step size eta, which multiplies the gradient of the mean potential, like a learning rate.
    "auto": 0.002 for pSGLD, 0.03 for SGLD, 0.005 for second-order samplers. For linear models,
    pSGLD takes up to 0.02, as long as a step is small compared with the width of the spike.
batch_size : "auto" or int, default="auto"
    Number of rows in a minibatch, at most all rows. "auto": all rows if X has at most 32,768
    values, otherwise 100; for linear models with pSGLD one fiftieth of the rows, from 100 to
    5000.
thinning : "auto", int or MixingDistance, default="auto"
    Number of steps between two draws of a chain in ``fit``. "auto": such that the draws take as
    long as the burn-in; a tenth of a pass, at most 100, if ``step_size`` is a number.
init : "auto", "random", "map" or array, default="auto"
    Starting points of the chains. "random": normal weights with He's scaling. "map": as
    "random", and the first half of the burn-in runs at temperature 0, as an optimiser. An array
    is broadcast to (n_chains, n_parameters). "auto": "random".
compiled : "auto" or bool, default="auto"
    Whether to use the compiled code of the extra ``fast`` in long runs on a CPU: for the latent
    variables, for gradients of linear models with one output or two classes, and for steps of
    SGLD and pSGLD with the Euler integrator. The compiled steps have their own random number
    generator, so the same seed gives different draws.
inclusion_probability_ : array of shape (n_features,)
    Inclusion probability of each column: the posterior mean of the largest rho among its
    weights in the first layer; only if the first layer is sparse.
compiled_ : tuple of str
    Names of the accelerators used in the last call, such as ("fused_steps", "spike_slab"); ()
    if none.
threshold : float, default=0.5
    A feature is selected if its inclusion probability is above this threshold.
delta_ : array of shape (n_sparse_layers,)
    Posterior mean of delta for each sparse layer.
sparsity_ : float
    Fraction of zeros in the draws of the weights of sparse or pruned layers.
n_effective_parameters_ : float
    Mean number of nonzero parameters of a draw.
""")

#: of linear models
LINEAR = _entries(r"""
sampler : str or Sampler, default="auto"
    Sampler, as a name or as an object with parameters such as ``SGHMC(friction=0.05)``. Names:
    "sgld", "psgld", "sghmc", "sgnht", "msgnht", "mclmc" and "mala" (exact, with all rows in
    every step). "auto": "sghmc" if steps take all rows and the prior is smooth, otherwise, or
    if a parameter of steps is given, "sgld".
step_size : "auto", float or Schedule, default="auto"
    Step size eta, which multiplies the gradient of the mean potential, like a learning rate.
    "auto": a fixed step for each sampler, in coordinates where the posterior is close to a
    standard normal. With ``sampler="psgld"``, "auto" raises an error if the features are so
    correlated that a diagonal preconditioner would need very long runs.
preconditioner : "auto", None, "hessian", "diagonal" or array, default="auto"
    Constant preconditioner M, of shape (P, P) or (P,) for P parameters. "hessian": the inverse
    of the curvature of the posterior. "diagonal": the inverse of its diagonal. "auto":
    "hessian" for up to 2000 parameters, otherwise "diagonal", with other lengths in
    a few directions if steps take all rows; None if ``step_size`` is a number.
gradient : str, default="auto"
    Estimator of the gradient: "minibatch", or "control_variates" centred at the MAP (Baker et
    al. 2019), for ``fit`` only, or "linear_control_variates", which are fitted to the Gaussian
    approximation, with importance-sampled rows. "auto": "linear_control_variates" with a matrix
    preconditioner, otherwise "control_variates"; "minibatch" if ``step_size`` is a number.
batch_size : "auto" or int, default="auto"
    Number of rows in a minibatch, at most all rows. "auto": all rows of a small data set,
    otherwise as many as keep the gradient noise small; 100 if ``step_size`` is a number.
n_chains : int, default=4
    Number of chains. Each chain has its own starting point, and R-hat compares the chains.
n_draws : "auto" or int, default="auto"
    Number of draws kept per chain. "auto": 1000, or fewer if they would need more than 1 GiB,
    and for more than 10,000 parameters, but at least 250 if memory allows.
burn_in : "auto" or int, default="auto"
    Number of steps before the first draw in ``fit``. "auto": about as many steps as the chains
    need to forget their starting points.
thinning : "auto", int or MixingDistance, default="auto"
    Number of steps between two draws of a chain in ``fit``. "auto": at most 20, depending on
    the step size; a tenth of a pass, at most 100, if ``step_size`` is a number.
init : "auto", "random", "map", "gaussian" or array, default="auto"
    Starting points of the chains. "random": near zero. "map": the maximum of the posterior.
    "gaussian": draws of the Gaussian approximation of the posterior. An array is broadcast to
    (n_chains, n_parameters). "auto": "gaussian" with a matrix preconditioner, otherwise "map";
    "random" if ``step_size`` is a number.
warm_start : bool, default=False
    If True, the next ``fit`` continues from the last state of the chains, after a burn-in,
    since its posterior may be another. ``burn_in=0`` leaves that out.
compiled : "auto" or bool, default="auto"
    Whether to use the compiled code of the extra ``fast`` where it applies: SGLD and pSGLD by
    Euler steps on a CPU. It has its own random number generator, so the same seed gives
    different draws.
""")

#: of topic models
TOPICS = _entries(r"""
parametrization : {"expanded_mean", "expanded_natural"}, default="expanded_mean"
    Coordinates of the topics phi_k. "expanded_mean": normalised Gamma variables, sampled with
    their Riemannian metric (SGRLD). "expanded_natural": the softmax of natural parameters.
prior : {"gamma", "normal"}, default="gamma"
    Prior of the topics. "gamma": each topic is a vector of Gamma(beta, 1) variables,
    normalised, which makes the topics Dirichlet(beta). "normal": natural parameters ~
    N(prior_mean, prior_scale^2), only with "expanded_natural".
sampler : str or Sampler, default="auto"
    Sampler, as a name or as an object with parameters such as ``SGHMC(friction=0.05)``. Names:
    "rsgld" (with "expanded_mean"), "msgnht", "sghmc", "sgnht", "sgld" and "psgld" (with
    "expanded_natural"). "auto": "rsgld" or "msgnht", depending on ``parametrization``.
batch_size : "auto" or int, default="auto"
    Number of rows in a minibatch, at most all rows. A row is a document. "auto": documents of
    about 10,000 words in all, but at least 20 and at most 100 documents, or all of a small
    corpus; 100 with ``partial_fit``, with "expanded_natural" and if ``step_size`` is a number.
n_chains : int, default=1
    Number of chains. Different chains may find different topics. The topics of all chains are
    matched, and predictions and ``components_`` average over the chains.
thinning : "auto" or int, default="auto"
    Number of steps between two draws of a chain in ``fit``. "auto": such that the draws take as
    long as the burn-in; a tenth of a pass, at most 100, if ``step_size`` is a number.
init : {"auto", "random", "map"}, default="auto"
    Starting points of the chains. "random": topics near the word frequencies of the corpus.
    "map": as "random", and the first half of the burn-in runs at temperature 0, as an
    optimiser; not allowed with "expanded_mean". "auto": "map" with "expanded_natural" and
    ``step_size="auto"``, otherwise "random".
compiled : "auto" or bool, default="auto"
    Whether to use the compiled code of the extra ``fast``. On a CPU, it samples the variables
    of the documents about fifteen times as fast. It has its own random number generator, so the
    same seed gives different draws. "auto": use it if it is installed and there are at least
    5,000 words.
verbose : int, default=0
    If positive, print steps and the time left.
    Scikit-learn's callbacks work, too.
prior_scale : float, default=1.0
    Standard deviation of the normal prior.
prior_mean : float, default=0.1
    Mean of the normal prior.
dtype : {"auto", "float32", "float64"}, default="auto"
    Precision of the sampling. "auto": float32.
n_features_in_ : int
    Number of words in the vocabulary.
""")
