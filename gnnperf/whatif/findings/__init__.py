"""Bottlenecks of a step, with evidence, and the gain of a remedy as an edit of `gnnperf.whatif` gives it."""

from gnnperf.whatif.findings.finding import Basis, Finding, Observed, Suspect, Way, measured_step
from gnnperf.whatif.findings.search import LARGEST_GRAPH, find

__all__ = ["LARGEST_GRAPH", "Basis", "Finding", "Observed", "Suspect", "Way", "find", "measured_step"]
