"""Known changes of a program as edits of its graph: graph in, graph out, and what the edit cannot know."""

from gnnperf.plan.blocking import Block, WaitAs
from gnnperf.plan.donor import LatenciesOf
from gnnperf.plan.edit import Edit, Edited, apply
from gnnperf.plan.pause import Pause
from gnnperf.plan.places import Place
from gnnperf.plan.repeat import RepeatOp, RunOnce
from gnnperf.plan.step_time import step_times_us
from gnnperf.plan.units import OpSelector

__all__ = [
    "Block",
    "Edit",
    "Edited",
    "LatenciesOf",
    "OpSelector",
    "Pause",
    "Place",
    "RepeatOp",
    "RunOnce",
    "WaitAs",
    "apply",
    "step_times_us",
]
