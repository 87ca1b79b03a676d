"""Which processors runs ran on, as their cards say: traces name GPUs, but no CPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from gnnperf.trace.storage import read_card

MAX_NAME = 100  # characters; a card may come from a stranger


def processors_of(runs: Iterable[Path]) -> tuple[str, ...]:
    """The CPUs that did the work of any rank, once each; of a run without a card, or on GPUs, none.

    Virtual machines often hide which one it is ("AMD EPYC"), so that an equal name proves nothing; another one does.

    Args:
        runs: folders, each with the card that the recorder left beside the traces.

    Raises:
        InputError: a card is no JSON object, or larger than one.
    """
    cards = [read_card(run) for run in runs]
    return tuple(sorted({name for card in cards if card is not None for name in _named(card)}))


def _named(card: Mapping[str, object]) -> list[str]:
    """The names that a card gives; what is not as the recorder writes it names nothing."""
    ranks = card.get("ranks")
    devices = [rank.get("device") for rank in ranks if isinstance(rank, Mapping)] if isinstance(ranks, list) else []
    names = [d.get("name") for d in devices if isinstance(d, Mapping) and d.get("kind") == "cpu"]
    return [name[:MAX_NAME] for name in names if isinstance(name, str) and name and name.isprintable()]
