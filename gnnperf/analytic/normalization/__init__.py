"""Softmax and layer norm, row by row: sizes of calls and time."""
