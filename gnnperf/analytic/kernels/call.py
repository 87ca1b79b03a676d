"""KernelCall: one distinct op call as the graph holds it, and what is predicted for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from gnnperf.analytic.convolution.model import ConvolutionConstants
from gnnperf.analytic.embedding.model import Access
from gnnperf.analytic.gemm.constants import Members
from gnnperf.analytic.memory_bound.constants import MemoryConstants
from gnnperf.graph import DTYPE_BYTES, OpCall, UnknownCost, parse_call
from gnnperf.hardware import DeviceSpec

Array = npt.NDArray[np.float64]
UNRECORDED_DTYPE = "float32"  # torch's default, as gnnperf.graph.cost assumes where a trace has shapes without dtypes


class Bound(StrEnum):
    """What a call's latency is made of most."""

    COMPUTE = "compute"  # arithmetic at the sustained rate
    MEMORY = "memory"  # bytes at the sustained bandwidth
    LAUNCH = "launch"  # what every kernel costs, however small


@dataclass(frozen=True)
class LookupAccess:
    """How a lookup falls on its table."""

    counted: Access | None = None  # how often rows are requested again; None: by `skew`
    skew: float = 1.0  # row = floor(rows u^skew) with u uniform; 1: uniform
    tables: float = 1.0  # looked up in turn, each as large; they share the caches
    warm: bool = False  # the same call came before; else the caches hold something else


@dataclass(frozen=True)
class KernelCall:
    """One op call, all its kernels together."""

    op_name: str  # as in the trace, e.g. "aten::mm".
    input_dims: str | None  # JSON list of input shapes, one per argument; None not recorded
    dtype: str | None  # of the largest input; None not recorded
    family: str  # OpFamily
    flops: float  # of the whole call; NaN unknown
    moved_bytes: float  # read and written by the whole call; NaN unknown
    num_kernels: int = 1  # that the call launched; 1 where that is not known
    # float32 products may use TF32; torch's default is not. Convolutions may in any case, as torch has it.
    tf32: bool = False
    # calls in turn on operands of their own, which compete for the cache (1: one call in a loop); None: in a program
    turns: float | None = None
    access: LookupAccess = LookupAccess()  # of an embedding lookup; it is not in shapes

    @property
    def plain_name(self) -> str:
        """The op without what marks it as in place: "aten::add" for "aten::add_"."""
        return self.op_name.removesuffix("_")

    @property
    def known_dtype(self) -> str:
        """The dtype, or torch's default."""
        return self.dtype or UNRECORDED_DTYPE

    @property
    def item_bytes(self) -> int:
        """Of one element of the largest input."""
        return DTYPE_BYTES.get(self.known_dtype, DTYPE_BYTES[UNRECORDED_DTYPE])

    def parsed(self) -> OpCall:
        """Its shapes; every tensor's dtype is left at the default, see `item_bytes`.

        Raises UnknownCost: none were recorded.
        """
        return parse_call(self.op_name, self.input_dims, None, None)


@dataclass(frozen=True)
class KernelTimes:
    """Predictions for [n] calls."""

    latency_us: Array  # of the whole call; NaN where neither FLOPs nor bytes are known
    bound: npt.NDArray[np.object_]  # Bound as str objects; None where the latency is NaN
    by_form: npt.NDArray[np.bool_]  # bool: a closed form of the family predicted it, not the plain roofline


@dataclass(frozen=True)
class Setting:
    """What every form needs: the device, and constants of kernels."""

    device: DeviceSpec
    memory: MemoryConstants
    gemm: Mapping[str, Members]
    convolution: ConvolutionConstants


Form = Callable[[Sequence[KernelCall], Setting], Array]  # calls of one family -> [n] us, NaN: the form does not apply


def sized(calls: Sequence[KernelCall], sizes: Callable[[KernelCall], tuple[float, ...]], width: int) -> Array:
    """[n, width] sizes of each call; a row of NaN where its shapes do not determine them."""
    result = np.full((len(calls), width), np.nan)
    for row, call in enumerate(calls):
        try:
            result[row] = sizes(call)
        except (UnknownCost, IndexError):  # fewer arguments or dimensions recorded than the op has
            continue
    return result


def rounded_up(values: Array, multiple: float) -> Array:
    """[n] the next multiples."""
    return np.ceil(values / multiple) * multiple


def known_rows(sizes: Array) -> npt.NDArray[np.intp]:
    """Rows of `sized` that are whole."""
    return np.flatnonzero(~np.isnan(sizes).any(axis=1))


def column(calls: Sequence[KernelCall], name: str) -> Array:
    """[n] a number of each call; NaN unknown, of `turns`: in a program."""
    return np.array([getattr(call, name) for call in calls], float)
