"""gnnperf: a learned performance model for multi-GPU training."""

__version__ = "0.1.0"
