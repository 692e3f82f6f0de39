"""Errors and warnings of the package."""


class SamplingError(RuntimeError):
    """Every chain left the finite numbers, so there is no posterior to return."""


class SamplingWarning(UserWarning):
    """The draws exist but should not be trusted blindly: the text has the number and the remedy."""


class CheckpointError(ValueError):
    """A checkpoint file is damaged or belongs to another fit; the file was left untouched."""
