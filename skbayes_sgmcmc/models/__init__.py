"""Models: log prior, log likelihood and gradients, one model a file."""
