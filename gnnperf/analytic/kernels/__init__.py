"""Calls of kernels, whatever their family: what a trace holds of one, and which form predicts it."""
