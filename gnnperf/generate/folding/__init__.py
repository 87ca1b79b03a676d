"""Ranks with equal roles once: graphs of thousands of ranks in the nodes of a few."""
