"""Known changes of a program as edits of its graph: graph in, graph out, and what the edit cannot know."""

from gnnperf.plan.batch import ScaleBatch
from gnnperf.plan.blocking import Block, WaitAs
from gnnperf.plan.compress import CompressMessages
from gnnperf.plan.declared import InputStall, OpLatency, Straggler
from gnnperf.plan.declared_pause import DeclarePause
from gnnperf.plan.donor import LatenciesOf
from gnnperf.plan.dtype import ChangeDtype
from gnnperf.plan.edit import Edit, Edited, apply
from gnnperf.plan.fusion import FuseElementwise
from gnnperf.plan.horizontal import FuseHorizontally
from gnnperf.plan.other_cluster import ChangeCluster
from gnnperf.plan.other_device import ChangeDevice
from gnnperf.plan.other_link import ChangeLink
from gnnperf.plan.other_stream import MoveToStream
from gnnperf.plan.pause import Pause
from gnnperf.plan.places import Place
from gnnperf.plan.repeat import RepeatOp, RunOnce
from gnnperf.plan.repeated_op import RepeatCalls
from gnnperf.plan.sequence import ScaleSequence
from gnnperf.plan.step_time import step_times_us
from gnnperf.plan.table_size import ResizeTables
from gnnperf.plan.tensor_train import CompressTables
from gnnperf.plan.units import OpSelector
from gnnperf.plan.wait_later import WaitLater

__all__ = [
    "Block",
    "ChangeCluster",
    "ChangeDevice",
    "ChangeDtype",
    "ChangeLink",
    "CompressMessages",
    "CompressTables",
    "DeclarePause",
    "Edit",
    "Edited",
    "FuseElementwise",
    "FuseHorizontally",
    "InputStall",
    "LatenciesOf",
    "MoveToStream",
    "OpLatency",
    "OpSelector",
    "Pause",
    "Place",
    "RepeatCalls",
    "RepeatOp",
    "ResizeTables",
    "RunOnce",
    "ScaleBatch",
    "ScaleSequence",
    "Straggler",
    "WaitAs",
    "WaitLater",
    "apply",
    "step_times_us",
]
