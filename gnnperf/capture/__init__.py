"""A user's own training step -> ExecutionGraph of all ranks, with nothing computed and nothing sent."""

from gnnperf.capture.api import capture

__all__ = ["capture"]
