"""Edits of a graph -> the variant of the step whose memory is requested, and what no variant tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gnnperf.core import OpFamily
from gnnperf.graph import ExecutionGraph, lookup
from gnnperf.memory.given import AsRecorded, Variant
from gnnperf.memory.scaled import ScaledBatch
from gnnperf.memory.step_calls import Call
from gnnperf.memory.storages import Slot, TensorSlot
from gnnperf.whatif import ChangeDtype, Edit, InputStall, OpLatency, ScaleBatch, Straggler, find_batch, op_of

# The step in another dtype: by autocast (parameters stay, products take copies of them), or all of it.
#
# autocast   norm -> float32    copy of it, copy of the weight -> bfloat16    addmm -> bfloat16    loss: copy -> float32
#
# Which ops autocast casts for is in PyTorch's aten/src/ATen/autocast_mode.h; what follows, torch's own promotion tells.

PRODUCTS = (OpFamily.GEMM, OpFamily.CONV, OpFamily.ATTENTION)
# In float32 under autocast. What GPUs do so next to, CPUs compute as it comes.
FULL = ("_log_softmax", "nll_loss_forward", "mse_loss", "binary_cross_entropy_with_logits", "smooth_l1_loss")
FULL_ON_GPUS = ("_softmax", "native_layer_norm", "native_group_norm", "exp", "log", "pow", "sum", "cumsum", "norm")
FLOAT = "float32"


@dataclass(frozen=True)
class Autocast:
    """Products in a lower dtype.

    Attributes:
        of, to: dtypes.
        inner: another variant.
        on_gpu: which of autocast's lists holds.
    """

    of: str
    to: str
    inner: Variant
    on_gpu: bool

    def source(self, recorded: TensorSlot) -> TensorSlot:
        """Data stay in their dtype."""
        return self.inner.source(recorded)

    def parameter(self, recorded: TensorSlot) -> TensorSlot:
        """Parameters, too."""
        return self.inner.parameter(recorded)

    def arguments(self, call: Call, recorded: Sequence[TensorSlot], actual: Sequence[TensorSlot]) -> tuple[Slot, ...]:
        """As without."""
        return self.inner.arguments(call, recorded, actual)

    def guess(self, call: Call, recorded: Sequence[TensorSlot]) -> Sequence[TensorSlot]:
        """In the recorded dtype."""
        return self.inner.guess(call, recorded)

    def casts(self, call: Call, actual: Sequence[TensorSlot]) -> tuple[str, ...]:
        """Forward ops only: the backward takes what was kept."""
        if call.node >= 0:
            return ("",) * len(actual)
        if lookup(call.name)[0] in PRODUCTS:
            return tuple(self.to if t.dtype == self.of else "" for t in actual)
        full = (*FULL, *FULL_ON_GPUS) if self.on_gpu else FULL
        return tuple(FLOAT if t.dtype == self.to and op_of(call.name) in full else "" for t in actual)


@dataclass(frozen=True)
class AllCast:
    """Everything that has one dtype has another one: model.to(dtype).

    Attributes:
        of, to: dtypes.
        inner: another variant.
    """

    of: str
    to: str
    inner: Variant

    def source(self, recorded: TensorSlot) -> TensorSlot:
        """Data."""
        return self._cast(self.inner.source(recorded))

    def parameter(self, recorded: TensorSlot) -> TensorSlot:
        """Parameters, and what is as large: gradients, optimizer state."""
        return self._cast(self.inner.parameter(recorded))

    def arguments(self, call: Call, recorded: Sequence[TensorSlot], actual: Sequence[TensorSlot]) -> tuple[Slot, ...]:
        """As without."""
        return self.inner.arguments(call, recorded, actual)

    def guess(self, call: Call, recorded: Sequence[TensorSlot]) -> Sequence[TensorSlot]:
        """All of them."""
        return [self._cast(tensor) for tensor in self.inner.guess(call, recorded)]

    def casts(self, call: Call, actual: Sequence[TensorSlot]) -> tuple[str, ...]:
        """None."""
        return ("",) * len(actual)

    def _cast(self, tensor: TensorSlot) -> TensorSlot:
        return replace(tensor, dtype=self.to) if (tensor.dtype or FLOAT) == self.of else tensor


MIXED = "mixed"  # of ChangeDtype's scopes: autocast
TIME_ONLY = (OpLatency, InputStall, Straggler)
NOT_TOLD = "peak memory with {}: it is told without this edit"
SAME_OPS = "whether another batch makes the program keep other tensors: it is taken to make the same ones"


@dataclass(frozen=True)
class MemoryEdits:
    """What edits make of memory.

    Attributes:
        variant: of the step.
        unknown: sentences: what is left out.
    """

    variant: Variant
    unknown: tuple[str, ...]


def memory_edits(graph: ExecutionGraph, edits: Sequence[Edit], *, on_gpu: bool) -> MemoryEdits:
    """The variant with another batch or dtype; edits of time by itself change nothing, all others are named.

    Args:
        graph: of the step, unedited.
        edits: in order.
        on_gpu: where the step runs.

    Raises:
        InputError: nothing tells which sizes are batch.
    """
    factor = 1.0
    for edit in edits:
        factor *= edit.factor if isinstance(edit, ScaleBatch) else 1.0
    known = (*TIME_ONLY, ScaleBatch, ChangeDtype)
    unknown = [NOT_TOLD.format(edit) for edit in edits if not isinstance(edit, known)]
    variant: Variant = AsRecorded()
    if factor != 1.0:
        variant = ScaledBatch(find_batch(graph), factor)
        unknown.append(SAME_OPS)
    for edit in edits:
        if isinstance(edit, ChangeDtype):
            variant = recast(edit, variant, on_gpu=on_gpu)
    return MemoryEdits(variant, tuple(unknown))


def recast(edit: ChangeDtype, inner: Variant, *, on_gpu: bool) -> Variant:
    """The step in another dtype."""
    if edit.scope == MIXED:
        return Autocast(edit.of, edit.to, inner, on_gpu)
    return AllCast(edit.of, edit.to, inner)
