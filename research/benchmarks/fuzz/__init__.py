"""Mutated inputs of strangers: every reader returns, or raises InputError, in bounded time and memory."""
