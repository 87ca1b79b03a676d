"""What the recorder says to people: on stderr, since stdout belongs to the program that is recorded."""

from __future__ import annotations

from gnnperf.core.output.terminal import complain


def say(line: str) -> None:
    """One line, at once."""
    complain("gnnperf", line)
