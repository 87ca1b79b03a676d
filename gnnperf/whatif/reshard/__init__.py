"""Embedding tables of a recorded graph placed otherwise: which ops move to which rank, with which shapes."""

from gnnperf.whatif.reshard.edit import PlaceTables, Recorded
from gnnperf.whatif.reshard.units import Model

__all__ = ["Model", "PlaceTables", "Recorded"]
