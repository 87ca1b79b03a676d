"""Embedding tables of a recorded graph placed otherwise: which ops move to which rank, with which shapes."""

from gnnperf.plan.reshard.edit import PlaceTables, Recorded
from gnnperf.plan.reshard.parts import Model

__all__ = ["Model", "PlaceTables", "Recorded"]
