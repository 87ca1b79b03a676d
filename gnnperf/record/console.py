"""What the recorder says to people: on stderr, since stdout belongs to the program that is recorded."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    """One line, at once."""
    print(f"gnnperf: {line}", file=sys.stderr, flush=True)
