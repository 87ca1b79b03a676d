"""Which processors runs ran on, as their cards say: traces name GPUs, but no CPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnperf.trace import device_name, read_card

CAPABILITY = re.compile("[A-Z0-9_ .]{0,32}")  # a card may come from a stranger


@dataclass(frozen=True, order=True)
class Processor:
    """A CPU as a card tells it.

    Virtual machines often hide which one it is: two that call themselves "AMD EPYC" may be two generations apart. What
    vectors they have tells those apart; equal in both, they may still be two.

    Attributes:
        name: of the model.
        capability: vector instructions that torch uses there (AVX2, AVX512, ..); "" unknown.
    """

    name: str
    capability: str = ""

    def __str__(self) -> str:
        """As people are given."""
        return f"{self.name} ({self.capability})" if self.capability else self.name

    def may_be(self, other: Processor) -> bool:
        """Whether nothing that is known tells the two apart."""
        unknown = "" in (self.capability, other.capability)
        return self.name == other.name and (unknown or self.capability == other.capability)


def processors_of(runs: Iterable[Path]) -> tuple[Processor, ...]:
    """The CPUs that did the work of any rank, once each; of a run without a card, or on GPUs, none.

    Args:
        runs: folders, each with the card that the recorder left next to the traces.

    Raises:
        InputError: a card is no JSON object, or larger than one.
    """
    cards = [read_card(run) for run in runs]
    return tuple(sorted({result for card in cards if card is not None for result in _named(card)}))


def as_processor(device: Mapping[str, Any]) -> Processor | None:
    """A processor as `Processor`'s fields name it; None where that is not as they are written."""
    stated, capability = device.get("name"), device.get("capability", "")
    name = device_name(stated) if isinstance(stated, str) else ""
    is_known = isinstance(capability, str) and CAPABILITY.fullmatch(capability)
    return Processor(name, capability if is_known else "") if name else None


def _named(card: Mapping[str, object]) -> list[Processor]:
    """What a card names; what is not as the recorder writes it names nothing."""
    ranks = card.get("ranks")
    devices = [rank.get("device") for rank in ranks if isinstance(rank, Mapping)] if isinstance(ranks, list) else []
    result = [as_processor(d) for d in devices if isinstance(d, Mapping) and d.get("kind") == "cpu"]
    return [one for one in result if one is not None]
