"""The data that chains read: rows, minibatches, and each chain's stream of random numbers."""
