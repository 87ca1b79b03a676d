"""Recordings that need no recording: graphs in memory, cards on disk."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from gnnperf.gnn.data.recordings import Processor, Recording


def recording(run: str, repeat: int, unprofiled_us: float, **about: object) -> Recording:
    """One recording of two ranks on one machine."""
    facts: dict[str, object] = {
        "profiled_us": unprofiled_us, "workload": "toy", "link": "loopback", "world_size": 2, "machine": "m", **about
    }  # fmt: skip
    return Recording(Path(f"{run}/{repeat}"), run, repeat, unprofiled_us, **facts)  # type: ignore[arg-type]


def write_card(folder: Path, unprofiled_us: float, **changes: object) -> None:
    """A card as `gnnperf record` writes it, as far as it is read here."""
    card: Mapping[str, object] = {
        "status": "complete", "workload": "dlrm", "world_size": 2, "machine": "f00d",
        "link": {"medium": "veth", "rate_gbit_per_s": 1.0},
        "step_time": {"without_profiler": {"median_us": unprofiled_us},
                      "with_profiler": {"median_us": 1.1 * unprofiled_us}},
        **changes,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(card), encoding="utf-8")


def carded(folder: Path, *devices: Processor | Mapping[str, object]) -> Path:
    """A folder with a card that names the device of every rank, and nothing else."""
    named = [{"kind": "cpu", **asdict(one)} if isinstance(one, Processor) else one for one in devices]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"ranks": [{"device": device} for device in named]}))
    return folder
