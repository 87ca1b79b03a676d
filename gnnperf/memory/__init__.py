"""How much memory a step holds at its peak, rank by rank: from what a recording tells of its ops, or from a capture."""

from gnnperf.memory.peak import Part, PeakMemory

__all__ = ["Part", "PeakMemory"]
