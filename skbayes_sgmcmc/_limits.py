"""How much is held, computed or waited for at once, and from where on another way is faster.

All of it in one object, ``LIMITS``. A field changes draws by rounding, or by the order of random
numbers, and never what they are drawn from, unless its comment says more. Code reads the fields
when it runs, because tests set them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Limits:
    """Numbers are counted, not bytes, except where a name says bytes."""

    # What is held ---------------------------------------------------------------------------------

    #: rows are copied whole up to this size: read from tables at once, held as minibatches need
    #: them, scaled. Larger ones are read block by block, and more often (docs/scale.md)
    held_bytes: int = 2**26
    #: what "auto" may add: all draws with ``n_draws="auto"``, or a rotated or scaled copy of X
    auto_bytes: int = 2**30
    #: largest X that "auto" calibrates, with a copy of four fifths of X at a time
    calibrated_bytes: int = 2**29
    #: most bytes of draws that a worker writes for others to see while a fit runs
    shared_bytes: int = 2**24
    #: memory maps of at most this share of the memory stay in it while rows are read by number
    share_of_maps: float = 0.5
    #: features stay dense beside indicators of groups up to this size
    dense_numbers: int = 2**22
    #: rows of a stream that are kept until they are a Gaussian: 8 MB, or more where there are this
    #: many parameters. Both change the draws (docs/results/streams.md)
    kept_numbers: int = 2**20
    kept_per_parameter: int = 20
    #: fewest numbers, of all rows together, that become this Gaussian. It could be 2^12 for rows in
    #: random order
    stream_numbers: int = 2**17

    # What is computed at once: blocks ------------------------------------------------------------

    #: most numbers of a block in any loop over rows, draws or coordinates: 8 MB. Predictions and
    #: sds of 20,000 rows take as long with twice as many
    block_numbers: int = 2**20
    #: most parameters of all draws that predict at once: 64 MB in single precision
    drawn_numbers: int = 2**24
    #: numbers that fit the second-level cache of a core: random numbers of the chunk of a chain,
    #: minibatches of all chains that are gathered at once, slopes at nodes of a quadrature, the
    #: topics of words
    cache_numbers: int = 2**18
    #: numbers of rows that are gathered at once where that takes long to begin: for minibatches on
    #: other devices, and for pools of rows of a file (docs/results/scale.md)
    pool_numbers: int = 2**24
    #: least runs of rows in such a pool: rows of one run are alike if the file is sorted
    pool_runs: int = 64
    #: bytes of rows that are read from a file at once
    read_bytes: int = 2**23
    #: rows of a block in matrix products, which a core's cache holds beside the result
    block_rows: int = 4096
    #: most rows of a block, however few numbers each has: sparse rows, labels as Python objects
    narrow_rows: int = 2**16
    #: rows of an input that pass through a module, or documents that are completed, at once
    module_rows: int = 1000
    #: the same for several chains or draws, or with gradients
    gradient_rows: int = 256
    #: numbers of a histogram's values; of more, this many are drawn
    plotted_numbers: int = 10**6

    # What stands for all -------------------------------------------------------------------------

    #: rows that an average over all rows is estimated from, or that stop a descent: its relative
    #: error is about 2%
    sampled_rows: int = 2000
    #: rows over which the statistics of batch norms are computed for each draw
    statistics_rows: int = 5000
    #: rows of the part that the first fit of many rows looks at, at least (tests/test_many_rows.py
    #: and test_posterior.py measure what is left to correct), and of a start of ICA; and most rows
    #: that leave tails of a learned scale's prior to the posterior, for which chains take longer
    part_rows: int = 20_000
    #: most parameters of a full Hessian, 32 MB. More have a diagonal one, and other
    #: draws
    full_hessian: int = 2000
    #: multiplications for a look at the draws of a finished run
    checked_products: int = 2**28

    # Time ----------------------------------------------------------------------------------------

    #: fewest and most steps between two checks of the chains, whatever the random numbers
    least_steps: int = 64
    chunk_steps: int = 1024
    #: most of them where chains are on another device
    device_steps: int = 256
    #: most multiplications of compiled steps, of all chains, that an interrupt waits for: some
    #: hundredths of a second
    waited_products: int = 2**26
    #: seconds between two reports of a worker, and between two looks at them
    look_seconds: float = 0.25
    #: least seconds between two checkpoints, and their largest share of the run's time
    write_seconds: float = 10.0
    write_share: float = 0.05

    # From where on another way is faster ---------------------------------------------------------

    #: what a whole run must save to be worth compiling: normals of SGLD and pSGLD
    #: (docs/results/network_speed.md); updated latent variables, with ``latent_numbers`` for a step
    #: (docs/results/sparse_speed.md); words of all documents (docs/results/lda_speed.md)
    worth_steps: int = 10**9
    #: numbers of all chains and steps for which updates that torch compiles save their seconds
    worth_fusing: int = 2**38
    worth_latents: int = 2 * 10**8
    latent_numbers: int = 20_000
    #: most latent variables that are drawn in every step (docs/project/performance.md)
    many_latents: int = 10_000
    worth_words: int = 5000
    #: fewest numbers of all draws that compiled code summarises
    worth_sorting: int = 2**22
    #: fewest layers of all steps before a compiled gradient of a network is worth its start, and
    #: most units of a layer, and products of a row in a convolution, while it is faster
    #: (docs/results/step_cost.md)
    worth_layers: int = 2000
    compiled_units: int = 128
    compiled_products: int = 2**20
    #: fewest units of all draws and rows before compiled outputs of a perceptron are worth loading
    #: in a new process (docs/results/prediction_speed.md)
    worth_outputs: int = 2**23
    #: parameters of a chain that are worth a thread: compiled steps then use several
    thread_numbers: int = 2**16
    #: most entries of a minibatch while the compiled linear SGLD is faster than torch
    #: (docs/results/speed.md)
    compiled_numbers: int = 2**17
    #: the same of one chain's minibatch for compiled slopes of latent variables
    latent_rows: int = 2**19
    #: sparse rows are padded to the longest if their total length grows at most by this factor
    #: (project/performance.md)
    padding: float = 1.5
    #: columns from which, and the share of numbers that are not zero up to which, the root of a
    #: preconditioner, or rows of a network, are multiplied as CSR matrices (project/performance.md)
    worth_sparse: int = 200
    sparse_share: float = 0.1
    #: largest share of rows in which a column differs from its most frequent value while a weight
    #: is looked up for each, and fewest such columns (project/performance.md)
    lookup_share: float = 1 / 16
    worth_lookups: int = 64
    #: most multiplications of a step of all chains with one thread of torch
    #: (project/performance.md)
    threaded_products: int = 2**26
    #: fewest multiplications of a step of one chain where single precision saves time
    #: (project/performance.md)
    single_products: int = 2**20
    #: ``device="auto"`` takes a GPU, and its random numbers, from these sizes on
    #: (docs/results/gpu.md). Multiplications in a step of all chains: with fewer, launching
    #: operations takes longer than they save; steps that are recorded are seven times as fast as 16
    #: cores' from the smallest that was measured. Multiplications in a run, which take 16 cores the
    #: two seconds that CUDA needs to start; for predictions, which have no gradients, this many
    #: times as many. Multiplications in a block of predictions where CUDA has started: at 2^35.5, a
    #: GPU took half the time of 16 cores
    gpu_step: int = 2**24
    gpu_recorded_step: int = 2**20
    gpu_run: int = 2**38
    gpu_start: int = 8
    gpu_prediction: int = 2**35
    #: steps of a run of unknown length; and multiplications of 16 cores in the time of one topic of
    #: one word on one core (8 ns), or a third of it
    default_steps: int = 6000
    topic_products: int = 300
    #: most topics for compiled sweeps that weigh all for each token, instead of those that its
    #: document has: a fit with 10 topics takes two thirds of the time, one with 50 six sevenths
    few_topics: int = 64
    #: most occurrences of a word in a document while its tokens are sampled one by one: the cost
    #: of others does not grow with their counts (project/topic_defaults.md)
    tokens: int = 200

    def blocks(self, n_rows: int, size: int) -> Iterator[slice]:
        """Slices of rows of ``size`` numbers each, of ``block_numbers`` in all, or of one row."""
        return slices(n_rows, max(1, self.block_numbers // max(1, size)))


def slices(n: int, step: int) -> Iterator[slice]:
    """Slices of ``step`` numbers up to n, in a tenth of the time of scikit-learn's gen_batches."""
    for first in range(0, n, step):
        yield slice(first, min(first + step, n))


#: the limits in force
LIMITS = Limits()
