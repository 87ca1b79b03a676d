"""A user's own training step -> ExecutionGraph of all ranks, with nothing computed and nothing sent."""

from gnnperf.generate.capturing.api import capture, captured_run

__all__ = ["capture", "captured_run"]
