"""Embedding look-ups and their gradients: sizes of calls, distinct rows, cache misses, time."""
