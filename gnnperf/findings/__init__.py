"""What holds a step up, with evidence, and what an edit of `gnnperf.plan` says a remedy would gain."""

from gnnperf.findings.finding import Basis, Finding, Suspect, Way
from gnnperf.findings.measured import measured_step
from gnnperf.findings.observed import Observed
from gnnperf.findings.search import LARGEST_GRAPH, find

__all__ = ["LARGEST_GRAPH", "Basis", "Finding", "Observed", "Suspect", "Way", "find", "measured_step"]
