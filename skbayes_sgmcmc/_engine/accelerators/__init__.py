"""Faster ways to take the same steps, where they apply."""
