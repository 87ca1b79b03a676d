"""What holds a step up, with evidence, and what an edit of `gnnperf.whatif` says a remedy would gain."""

from gnnperf.whatif.findings.finding import Basis, Finding, Suspect, Way
from gnnperf.whatif.findings.measured import measured_step
from gnnperf.whatif.findings.observed import Observed
from gnnperf.whatif.findings.search import LARGEST_GRAPH, find

__all__ = ["LARGEST_GRAPH", "Basis", "Finding", "Observed", "Suspect", "Way", "find", "measured_step"]
