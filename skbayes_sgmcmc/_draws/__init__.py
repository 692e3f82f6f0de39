"""The draws of a run: storage in memory or on disk, alignment, and averages over draws."""
