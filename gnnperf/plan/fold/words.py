"""What is said about graphs in which ranks stand for others."""

from __future__ import annotations

from collections.abc import Sequence


def stands_for_text(stands_for: Sequence[int]) -> tuple[str, ...]:
    """A sentence, or none where every rank is in the graph itself; `stands_for` as in ExecutionGraph."""
    counts = sorted(set(stands_for))
    if counts in ([], [1]):
        return ()
    each = " or ".join(str(count) for count in counts)
    return (f"Ranks with the same role are in the graph once: {len(stands_for)} ranks, each for {each}.",)
