"""What chains leave: draws in memory or on disk, their order, and averages over them."""
