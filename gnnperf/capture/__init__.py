"""A user's own training step -> ExecutionGraph of all ranks, with nothing computed and nothing sent."""

from gnnperf.capture.api import capture, captured_peak_memory

__all__ = ["capture", "captured_peak_memory"]
