"""Record training steps: a trace per rank and a card, in a run directory.

    with record("runs/mine", workload="gpt", parameters={"layers": 12}) as step:
        while not step.done:
            train_one_batch()
            step()

Needs torch and the standard library only, so it drops into anybody's training image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnnperf.record.recorder import record as record

__all__ = ["record"]


def __getattr__(name: str) -> object:
    """Load torch when `record` is asked for, not when the package is (`gnnperf record --help` answers at once)."""
    if name == "record":
        from gnnperf.record.recorder import record

        return record
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
