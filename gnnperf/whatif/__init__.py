"""Known changes of a program as edits of its graph: graph in, graph out, and what the edit cannot know."""

from gnnperf.whatif.batch import ScaleBatch
from gnnperf.whatif.blocking import Block, WaitAs
from gnnperf.whatif.compress import CompressMessages
from gnnperf.whatif.declared import InputStall, OpLatency, Straggler
from gnnperf.whatif.declared_pause import DeclarePause
from gnnperf.whatif.donor import LatenciesOf
from gnnperf.whatif.dtype import ChangeDtype
from gnnperf.whatif.edit import Edit, Edited, apply
from gnnperf.whatif.fusion import FuseElementwise
from gnnperf.whatif.horizontal import FuseHorizontally
from gnnperf.whatif.other_cluster import ChangeCluster
from gnnperf.whatif.other_device import ChangeDevice
from gnnperf.whatif.other_link import ChangeLink
from gnnperf.whatif.other_stream import MoveToStream
from gnnperf.whatif.pause import Pause
from gnnperf.whatif.places import Place
from gnnperf.whatif.repeat import RepeatOp, RunOnce
from gnnperf.whatif.repeated_op import RepeatCalls
from gnnperf.whatif.sequence import ScaleSequence
from gnnperf.whatif.step_time import step_times_us
from gnnperf.whatif.table_size import ResizeTables
from gnnperf.whatif.tensor_train import CompressTables
from gnnperf.whatif.units import OpSelector
from gnnperf.whatif.wait_later import WaitLater

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
