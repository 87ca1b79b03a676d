"""The card of a run, `run.json`: what ran, where, and how long its steps took with and without the profiler.

Each rank leaves its part next to its trace; rank 0 joins the parts and writes the card last. A run is complete only
when its card states so.
"""

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gnnperf.core import InputError, files, untrusted
from gnnperf.record import host_state

CARD = "run.json"
FORMAT = 2
COMPLETE, RECORDING, BROKEN = "complete", "recording", "broken"
POLL_S = 0.02
SHARED = ("host", "host_facts", "recorded_at")  # of a part: once in the card, not once per rank


@dataclass(frozen=True)
class Description:
    """What the caller states about a run; goes into the card as it is."""

    workload: str = ""  # which program: dlrm, transformer, cnn, or a name of the user's own
    parameters: Mapping[str, object] = field(default_factory=dict)  # its sizes; JSON values
    parallelism: Mapping[str, int] = field(default_factory=dict)  # ranks by kind: dp, tp, pp, ep, ...
    precision: str = "float32"  # dtype of the arithmetic
    batch: int | None = None  # samples per rank and step
    # what the ranks talk over, e.g. {"backend": "gloo", "medium": "loopback"}; empty: what can be seen of it
    link: Mapping[str, object] = field(default_factory=dict)
    repeat: int | None = None  # which recording of the same run this is, from 1; None if it is not part of a series
    conditions: Mapping[str, object] = field(default_factory=dict)  # anything else under which it ran; JSON values

    def __post_init__(self) -> None:
        """Refuse what a card cannot hold."""
        check(asdict(self))


def check(content: object) -> None:
    """Refuse what a card cannot hold: values that are not JSON."""
    try:
        json.dumps(content, allow_nan=False)
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


def reason(run_dir: Path) -> str:
    """Why a run is not complete; "" if its card does not say."""
    return str((files.read_json(run_dir / CARD) or {}).get("reason", ""))


def reserve(folder: Path) -> None:
    """Make the run directory."""
    if status(folder) == COMPLETE:
        raise InputError("holds a complete run", where=str(folder), remedy="give another directory or remove this one")
    with untrusted.reading(folder, "cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)


def write_status(run_dir: Path, description: Description, state: str, reason: str = "") -> None:
    """A card that states that the run is not complete, and why; on a full disk in the place of the card before."""
    why = {"reason": reason} if reason else {}
    card = {"format": FORMAT, "status": state, **why, "recorded_at": now(), **asdict(description)}
    try:
        files.write_json(run_dir / CARD, card)
    except OSError:
        if not (run_dir / CARD).exists():
            raise
        files.overwrite(run_dir / CARD, files.readable(card).encode())


def await_parts(run_dir: Path, world_size: int, timeout_s: float) -> list[dict[str, object]]:
    """The parts of all ranks, in order of rank."""
    deadline = time.monotonic() + timeout_s
    while True:
        parts = [files.read_json(run_dir / part_name(rank)) for rank in range(world_size)]
        missing = [rank for rank, part in enumerate(parts) if part is None]
        if not missing:
            return [part for part in parts if part is not None]
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank {', '.join(map(str, missing))} did not finish within {timeout_s:g} s")
        time.sleep(POLL_S)


def now() -> str:
    """UTC, to the second: 2026-11-21T10:38:44Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def write_complete(run_dir: Path, description: Description, parts: Sequence[Mapping[str, object]]) -> None:
    """Join the parts of all ranks into the card, and remove them."""
    from gnnperf.record import machine

    hosts = {str(part["host"]): part["host_facts"] for part in reversed(parts)}
    names = list(dict.fromkeys(str(part["host"]) for part in parts))
    own = [{key: value for key, value in part.items() if key not in SHARED} for part in parts]
    medium = "one host" if len(names) == 1 else "network"
    seen = {"backend": parts[0]["backend"], "medium": medium, "hosts": len(names)}  # of a link that is not described
    card = {
        "format": FORMAT,
        "status": COMPLETE,
        "recorded_at": parts[0]["recorded_at"],
        "machine": machine_of([hosts[name] for name in names]),
        "world_size": len(parts),
        **asdict(description),
        "link": description.link or (seen if len(parts) > 1 else {}),
        "versions": machine.versions(),
        "garbage_collector": "objects older than the first step set aside",
        "step_time": {kind: _over_ranks(parts, kind) for kind in ("without_profiler", "with_profiler")},
        "hosts": [hosts[name] for name in names],
        "ranks": [
            {"rank": rank, "host": names.index(str(part["host"])), **own[rank]} for rank, part in enumerate(parts)
        ],
    }
    files.write_json(run_dir / CARD, card)
    for rank in range(len(parts)):
        (run_dir / part_name(rank)).unlink(missing_ok=True)


def machine_of(hosts: Sequence[Any]) -> str:
    """One fingerprint for all hosts of a run: theirs if they are alike."""
    distinct = sorted({str(facts["fingerprint"]) for facts in hosts})
    return distinct[0] if len(distinct) == 1 else host_state.fingerprint({"hosts": distinct})


def _over_ranks(parts: Sequence[Mapping[str, object]], kind: str) -> dict[str, object]:
    """A step's time is the mean over ranks: all take part in every step, so their periods agree but for jitter."""
    from gnnperf.record.step_clock import summary

    samples = [part[kind]["samples_us"] for part in parts]  # type: ignore[index]
    whole = summary([statistics.fmean(step) for step in zip(*samples, strict=True)])
    return {key: value for key, value in whole.items() if key != "samples_us"}  # the ranks' own samples are in the card
