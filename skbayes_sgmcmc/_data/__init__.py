"""What chains read: rows and minibatches of them, and each chain's stream of random numbers."""
