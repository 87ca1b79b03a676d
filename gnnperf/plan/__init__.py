"""Known changes of a program as edits of its graph: graph in, graph out, and what the edit cannot know."""

from gnnperf.plan.batch import ScaleBatch
from gnnperf.plan.blocking import Block, WaitAs
from gnnperf.plan.compress import CompressMessages
from gnnperf.plan.declared import InputStall, OpLatency, Straggler
from gnnperf.plan.donor import LatenciesOf
from gnnperf.plan.dtype import ChangeDtype
from gnnperf.plan.edit import Edit, Edited, apply
from gnnperf.plan.fusion import FuseElementwise
from gnnperf.plan.pause import Pause
from gnnperf.plan.places import Place
from gnnperf.plan.repeat import RepeatOp, RunOnce
from gnnperf.plan.step_time import step_times_us
from gnnperf.plan.units import OpSelector

__all__ = [
    "Block",
    "ChangeDtype",
    "CompressMessages",
    "Edit",
    "Edited",
    "FuseElementwise",
    "InputStall",
    "LatenciesOf",
    "OpLatency",
    "OpSelector",
    "Pause",
    "Place",
    "RepeatOp",
    "RunOnce",
    "ScaleBatch",
    "Straggler",
    "WaitAs",
    "apply",
    "step_times_us",
]
