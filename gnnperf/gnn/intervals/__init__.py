"""How sure an answer is: intervals from what the same answers missed on runs that nothing was fitted on."""

from gnnperf.gnn.intervals.calibration import LEVEL, Intervals
from gnnperf.gnn.intervals.nodes import NodeIntervals, answer_table, fit_node_intervals
from gnnperf.gnn.intervals.steps import StepIntervals, StepMiss, fit_step_intervals, miss_of, shares_of

__all__ = [
    "LEVEL",
    "Intervals",
    "NodeIntervals",
    "StepIntervals",
    "StepMiss",
    "answer_table",
    "fit_node_intervals",
    "fit_step_intervals",
    "miss_of",
    "shares_of",
]
