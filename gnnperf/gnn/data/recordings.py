"""A recorded data set: <root>/<run>/<repeat>/ with a card (run.json) and the tables of all ranks.

Cards also name the processors of CPU runs, which traces do not.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnperf.core import InputError, untrusted
from gnnperf.trace import device_name, read_card

CARD = "run.json"
COMPLETE = "complete"
CAPABILITY = re.compile("[A-Z0-9_ .]{0,32}")  # a card may come from a stranger


@dataclass(frozen=True)
class Recording:
    """One recording of a run."""

    path: Path  # its folder
    run: str  # name of the run
    repeat: int  # which recording of it
    unprofiled_us: float  # median step without the profiler
    profiled_us: float  # median step with it
    workload: str  # which program; "" unknown
    link: str  # what the ranks talk over, in words
    world_size: int  # number of ranks
    machine: str  # its fingerprint; "" unknown

    @property
    def name(self) -> str:
        """<run>/<repeat>."""
        return f"{self.run}/{self.repeat}"


Repeats = Mapping[int, Recording]  # repeat -> recording


def read_recordings(root: Path) -> dict[str, Repeats]:
    """Run -> its complete recordings, in order of name and repeat; what is marked broken or rejected is left out."""
    result: dict[str, dict[int, Recording]] = {}
    for card in sorted(root.glob(f"*/*/{CARD}")):
        if card.parent.name.isdecimal() and (recording := read_recording(card.parent)) is not None:
            result.setdefault(recording.run, {})[recording.repeat] = recording
    if not result:
        raise InputError("holds no complete recordings", where=str(root),
                         allowed="<run>/<repeat>/run.json, as `gnnperf record --recipe` writes it")  # fmt: skip
    return {run: dict(sorted(repeats.items())) for run, repeats in result.items()}


def read_recording(folder: Path) -> Recording | None:
    """The recording in a folder; None unless its card marks it complete."""
    card = read_json(folder / CARD)
    if card.get("status") != COMPLETE:
        return None
    with untrusted.reading(folder / CARD, "is not a card of gnnperf record"):
        link = card.get("link") or {}  # as text: loopback, veth, veth 1 Gbit/s
        medium, rate = str(link.get("medium") or "unknown"), link.get("rate_gbit_per_s")
        link_name = medium if rate is None else f"{medium} {float(rate):g} Gbit/s"
        return Recording(
            path=folder, run=folder.parent.name, repeat=int(folder.name),
            unprofiled_us=_median_us(card, "without_profiler", folder),
            profiled_us=_median_us(card, "with_profiler", folder),
            workload=program_in(card), link=link_name,
            world_size=int(card.get("world_size") or 1), machine=str(card.get("machine") or ""),
        )  # fmt: skip


def program_in(card: Mapping[str, Any]) -> str:
    """The model that the program's parameters name, else the kind of program; "" unknown."""
    parameters = card.get("parameters")
    model = parameters.get("model") if isinstance(parameters, Mapping) else None
    return str(model or card.get("workload") or "")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object."""
    with untrusted.reading(path, "cannot be read, or is not JSON"):
        content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise InputError("is not a JSON object", where=str(path))
    return content


def _median_us(card: Mapping[str, Any], kind: str, folder: Path) -> float:
    try:
        result = float(card["step_time"][kind]["median_us"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"has no step time {kind.replace('_', ' ')}", where=str(folder / CARD),
                         remedy="record the run again with gnnperf record") from error  # fmt: skip
    if not (np.isfinite(result) and result > 0):
        raise InputError(
            f"step time {kind.replace('_', ' ')} is {result} us", where=str(folder / CARD), allowed="above 0"
        )
    return result


@dataclass(frozen=True, order=True)
class Processor:
    """A CPU as a card names it.

    Virtual machines often hide which one it is: two that call themselves "AMD EPYC" may be two generations apart. What
    vectors they have distinguishes those; equal in both, they may still be two.
    """

    name: str  # of the model
    capability: str = ""  # vector instructions that torch uses there (AVX2, AVX512, ..); "" unknown

    def __str__(self) -> str:
        """For messages."""
        return f"{self.name} ({self.capability})" if self.capability else self.name

    def may_be(self, other: "Processor") -> bool:
        """Whether nothing that is known distinguishes the two."""
        unknown = "" in (self.capability, other.capability)
        return self.name == other.name and (unknown or self.capability == other.capability)


def processors_of(runs: Iterable[Path]) -> "tuple[Processor, ...]":
    """The CPUs that did the work of any rank, once each; of a run without a card, or on GPUs, none.

    `runs` are folders, each with the card that the recorder left next to the traces. Raises InputError: a card is no
    JSON object, or larger than one.
    """
    cards = [read_card(run) for run in runs]
    return tuple(sorted({result for card in cards if card is not None for result in _named(card)}))


def as_processor(device: Mapping[str, Any]) -> "Processor | None":
    """A processor as `Processor`'s fields name it; None where that is not as they are written."""
    stated, capability = device.get("name"), device.get("capability", "")
    name = device_name(stated) if isinstance(stated, str) else ""
    is_known = isinstance(capability, str) and CAPABILITY.fullmatch(capability)
    return Processor(name, capability if is_known else "") if name else None


def _named(card: Mapping[str, object]) -> "list[Processor]":
    """What a card names; what is not as the recorder writes it names nothing."""
    ranks = card.get("ranks")
    devices = [rank.get("device") for rank in ranks if isinstance(rank, Mapping)] if isinstance(ranks, list) else []
    result = [as_processor(d) for d in devices if isinstance(d, Mapping) and d.get("kind") == "cpu"]
    return [one for one in result if one is not None]
