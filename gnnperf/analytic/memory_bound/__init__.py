"""Elementwise ops, reductions, fused chains and optimizers: sizes of calls, constants, time of their bytes."""
