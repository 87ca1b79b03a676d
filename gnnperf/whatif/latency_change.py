"""What an edit declares about latencies, for whoever tells latencies: a predictor, or the recording itself.

latency = (declared_us where declared, else told) x factor + added_us

A pause is added after every factor: a slower processor does not make a rank wait longer for its data. So the order in
which pauses and factors are composed does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LatencyChange:
    """Per node; nothing is changed where the factor is 1, nothing added and nothing declared.

    Attributes:
        factor: [num_nodes] of what is told.
        added_us: [num_nodes] on top of it, 0 none.
        declared_us: [num_nodes] in place of what is told; NaN none.
    """

    factor: np.ndarray
    added_us: np.ndarray
    declared_us: np.ndarray

    def of(self, told_us: np.ndarray) -> np.ndarray:
        """[num_nodes] latencies with the change; a node that nobody tells stays NaN unless it is declared."""
        return np.where(np.isnan(self.declared_us), told_us, self.declared_us) * self.factor + self.added_us

    def after(self, earlier: LatencyChange, came_from: np.ndarray) -> LatencyChange:
        """The earlier change, then this one; `came_from` [num_nodes]: node of the graph before that each one is."""
        declared = ~np.isnan(self.declared_us)  # a declaration replaces what was said before it
        return LatencyChange(
            factor=np.where(declared, 1.0, earlier.factor[came_from]) * self.factor,
            added_us=earlier.added_us[came_from] + self.added_us,
            declared_us=np.where(declared, self.declared_us, earlier.declared_us[came_from]),
        )


def no_change(num_nodes: int) -> LatencyChange:
    """Latencies as they are told."""
    return LatencyChange(np.ones(num_nodes), np.zeros(num_nodes), np.full(num_nodes, np.nan))


def scaled(chosen: np.ndarray, factor: float) -> LatencyChange:
    """`factor` for the nodes `chosen` [num_nodes] bool."""
    nothing = no_change(len(chosen))
    return LatencyChange(np.where(chosen, factor, 1.0), nothing.added_us, nothing.declared_us)


def delayed(chosen: np.ndarray, added_us: float) -> LatencyChange:
    """`added_us` more for the nodes `chosen` [num_nodes] bool."""
    nothing = no_change(len(chosen))
    return LatencyChange(nothing.factor, np.where(chosen, added_us, 0.0), nothing.declared_us)


def declared(chosen: np.ndarray, latency_us: float) -> LatencyChange:
    """`latency_us` for the nodes `chosen` [num_nodes] bool, whatever is told."""
    nothing = no_change(len(chosen))
    return LatencyChange(nothing.factor, nothing.added_us, np.where(chosen, latency_us, np.nan))
