"""Fused attention: sizes of calls, FLOPs and time."""
