"""Calls of kernels, whatever their family: what a trace says of one, and which form predicts it."""
