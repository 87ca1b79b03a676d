"""Which dtypes training saw on which device. A number says nothing of a pair that was never there.

Of a device that training lacks no pair was there, unless training had several: then it had to learn what devices have
in common, and a dtype of any of them counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.gnn.data.categories import NOTHING, words_of


@dataclass(frozen=True)
class Seen:
    """Attributes: dtypes: device -> node type -> dtypes of its measured nodes."""

    dtypes: Mapping[str, Mapping[str, tuple[str, ...]]]

    def unseen(self, node_type: str, nodes: pd.DataFrame, device: str) -> np.ndarray:
        """[n] bool: nodes of this type with a dtype that training did not have on the device."""
        words, place = words_of(nodes["dtype"])
        known = self._known(node_type, device)
        new = np.array([word != NOTHING and str(word) not in known for word in words], dtype=bool)  # [num_words]
        found: np.ndarray = new[place]
        return found

    def knows(self, device: str) -> bool:
        """Whether training had the device, or several others to learn from."""
        return device in self.dtypes or len(self.dtypes) > 1

    def _known(self, node_type: str, device: str) -> set[str]:
        if device in self.dtypes or not self.knows(device):
            return set(self.dtypes.get(device, {}).get(node_type, ()))
        return {dtype for types in self.dtypes.values() for dtype in types.get(node_type, ())}


def fit_seen(steps: Iterable[tuple[str, pd.DataFrame]]) -> Seen:
    """Of the measured nodes of training steps, each with the device it ran on."""
    found: dict[str, dict[str, set[str]]] = {}
    for device, table in steps:
        nodes = table[table["latency_us"].notna()]
        for node_type, rows in nodes.groupby("node_type", observed=True):
            words, place = words_of(rows["dtype"])
            known = found.setdefault(device, {}).setdefault(str(node_type), set())
            known.update(str(words[i]) for i in np.unique(place) if words[i] != NOTHING)
    return Seen({device: {t: tuple(sorted(words)) for t, words in types.items()} for device, types in found.items()})
