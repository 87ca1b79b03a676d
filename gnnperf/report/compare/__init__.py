"""Two answers about a step, or an answer and a measurement: what changed, as a waterfall. `gnnperf compare A B`."""

from gnnperf.report.compare.changes import BY, Change, Comparison, compare
from gnnperf.report.compare.side import Side, read_prediction

__all__ = ["BY", "Change", "Comparison", "Side", "compare", "read_prediction"]
