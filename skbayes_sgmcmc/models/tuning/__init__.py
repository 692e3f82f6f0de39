"""Meaning of "auto": samplers, step sizes and minibatches, by kind of posterior."""
