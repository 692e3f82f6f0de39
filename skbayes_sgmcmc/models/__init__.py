"""Models, one a file; subclass :class:`Model` for your own and give its rows as :class:`Data`."""

from ..minibatch import Batch, Data
from ._protocol import Model

__all__ = ["Batch", "Data", "Model"]
