"""What is said about graphs in which ranks stand for others."""

from __future__ import annotations

from collections.abc import Sequence

BEGIN = "Ranks with the same role are in the graph once: "


def stands_for_text(stands_for: Sequence[int]) -> tuple[str, ...]:
    """A sentence, or none where every rank is in the graph itself; `stands_for` as in ExecutionGraph."""
    counts = sorted(set(stands_for))
    if counts in ([], [1]):
        return ()
    each = " or ".join(str(count) for count in counts)
    return (f"{BEGIN}{len(stands_for)} ranks, each for {each}.",)


def said_anew(warnings: Sequence[str], stands_for: Sequence[int]) -> tuple[str, ...]:
    """The warnings with the sentence about ranks that stand for others as it is now."""
    return (*(each for each in warnings if not each.startswith(BEGIN)), *stands_for_text(stands_for))
