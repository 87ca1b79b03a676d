"""Peak memory of a program that never ran: the captured run, read as a recorded one."""

from __future__ import annotations

from collections.abc import Iterable

from gnnperf.generate import Build, captured_run
from gnnperf.memory.measured import PeakMemory
from gnnperf.memory.recorded import peak_memory


def captured_peak_memory(
    build: Build, world_size: int = 1, *, ranks: Iterable[int] | None = None, batches_held: int = 1
) -> tuple[PeakMemory, ...]:
    """Peak memory of every captured rank, of a program that never ran.

    Args:
        build: as of `capture`.
        world_size: number of ranks.
        ranks: which ranks are captured; None all.
        batches_held: batches like the step's own that the program keeps between steps.

    Returns:
        As of a recording on CPU ranks (`gnnperf.memory`).

    Raises:
        InputError: a setting cannot be, or a step depends on values of tensors.
    """
    return peak_memory(captured_run(build, world_size, ranks=ranks), batches_held=batches_held)
