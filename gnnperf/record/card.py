"""The card of a run, `run.json`: what ran, where, and how long its steps took with and without the profiler.

Each rank leaves its part beside its trace; rank 0 joins the parts and writes the card last. A run is complete only
when its card says so.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gnnperf.errors import InputError
from gnnperf.record import files, machine
from gnnperf.record.step_clock import summary

CARD = "run.json"
FORMAT = 1
COMPLETE, RECORDING, BROKEN = "complete", "recording", "broken"
POLL_S = 0.02


@dataclass(frozen=True)
class Description:
    """What the caller says about a run; goes into the card as it is.

    Attributes:
        workload: which program: dlrm, transformer, cnn, or a name of the user's own.
        parameters: its sizes; JSON values.
        parallelism: ranks by kind: dp, tp, pp, ep, ...
        precision: dtype of the arithmetic.
        batch: samples per rank and step.
        link: what the ranks talk over, e.g. {"backend": "gloo", "medium": "loopback"}.
    """

    workload: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict)
    parallelism: Mapping[str, int] = field(default_factory=dict)
    precision: str = "float32"
    batch: int | None = None
    link: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what a card cannot hold.

        Raises:
            InputError: a value is not JSON.
        """
        try:
            json.dumps(asdict(self), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f"cannot go into a card ({error})", where="record", allowed="JSON values") from error


def trace_name(rank: int) -> str:
    """File name of a rank's Kineto trace."""
    return f"rank_{rank}.kineto.json.gz"


def execution_trace_name(rank: int) -> str:
    """File name of a rank's execution trace."""
    return f"rank_{rank}.et.json.gz"


def part_name(rank: int) -> str:
    """File name of a rank's part of the card; gone once the card is written."""
    return f"rank_{rank}.part.json"


def status(run_dir: Path) -> str | None:
    """complete, recording or broken; None without a card."""
    card = files.read_json(run_dir / CARD)
    return None if card is None else str(card.get("status"))


def write_status(run_dir: Path, description: Description, state: str, reason: str = "") -> None:
    """A card that says that the run is not complete, and why."""
    card = {"format": FORMAT, "status": state, **({"reason": reason} if reason else {}), **asdict(description)}
    files.write_json(run_dir / CARD, card)


def await_parts(run_dir: Path, world_size: int, timeout_s: float) -> list[dict[str, object]]:
    """The parts of all ranks, in order of rank.

    Raises:
        TimeoutError: a rank did not finish in time.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        parts = [files.read_json(run_dir / part_name(rank)) for rank in range(world_size)]
        missing = [rank for rank, part in enumerate(parts) if part is None]
        if not missing:
            return [part for part in parts if part is not None]
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank {', '.join(map(str, missing))} did not finish within {timeout_s:g} s")
        time.sleep(POLL_S)


def write_complete(run_dir: Path, description: Description, parts: Sequence[Mapping[str, object]]) -> None:
    """Join the parts of all ranks into the card, and remove them."""
    files.write_json(run_dir / CARD, _joined(description, parts))
    for rank in range(len(parts)):
        (run_dir / part_name(rank)).unlink(missing_ok=True)


def _joined(description: Description, parts: Sequence[Mapping[str, object]]) -> dict[str, object]:
    hosts = list(dict.fromkeys(str(part["host"]) for part in parts))
    ranks = [
        {"rank": rank, "host": hosts.index(str(part["host"])), **{k: v for k, v in part.items() if k != "host"}}
        for rank, part in enumerate(parts)
    ]
    return {
        "format": FORMAT,
        "status": COMPLETE,
        "world_size": len(parts),
        **asdict(description),
        "versions": machine.versions(),
        "step_time": {kind: _over_ranks(parts, kind) for kind in ("without_profiler", "with_profiler")},
        "ranks": ranks,
    }


def _over_ranks(parts: Sequence[Mapping[str, object]], kind: str) -> dict[str, object]:
    """A step's time is the mean over ranks: all take part in every step, so their periods agree but for jitter."""
    samples = [part[kind]["samples_us"] for part in parts]  # type: ignore[index]
    whole = summary([statistics.fmean(step) for step in zip(*samples, strict=True)])
    return {key: value for key, value in whole.items() if key != "samples_us"}  # the ranks' own samples are in the card
