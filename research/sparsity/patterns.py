"""The Sparsity Roofline (Shinn et al. 2023): how much faster a layer can get with a sparse weight, by pattern.

    time(FLOPs, bytes) = max(FLOPs / rate, bytes / bandwidth)        speed-up = time of the dense layer / time

The layer is weight [m, k] times [k, n]; s is the share of the weight that is not stored. Per pattern:

    dense         2 m n k FLOPs            e (m k + k n + m n) bytes, e bytes each
    unstructured  2 m n k (1 - s)          e ((1 - s) m k + k n + m n) + 8 ((1 - s) m k + m + 1)          plain units
    block b x b   2 m n k (1 - s)          e (as above) + 8 ((1 - s) m k / b^2 + m / b + 1)               matrix units
    2:4, s = 1/2  2 m n k / 2              e (9/16 m k + k n + m n); of 8 bits 10/16                      matrix units

Compressed rows have an index per value or block and a pointer per row, 8 bytes each (`graph.cost.matmul`); 2:4
has 2 bits per kept value (Mishra et al. 2021). Matrix units take whole blocks from 16 x 16 on (Gray, Radford, Kingma
2017), and 2:4 at `sparse_matrix_speedup` times the rate of all m n k products. Rates and bandwidth are peaks; the
analytical model's latency, with sustained rates and launch floors, is next to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnperf.analytic import US, OpRow, answer_rows, rate_key_of
from gnnperf.analytic.gemm.model import rate_key
from gnnperf.analytic.gemm.sparse_calls import SMALLEST_MATRIX_BLOCK
from gnnperf.analytic.op_tables.columns import Sparsity
from gnnperf.core import require
from gnnperf.graph import DTYPE_BYTES, index_bytes
from gnnperf.hardware import DeviceSpec

DTYPES = ("float64", "float32", "float16", "bfloat16", "int8")
TWO_FOUR_SPARSITY = 0.5
SIXTEENTHS = 16


def roof_us(flops: float, moved_bytes: float, flops_per_s: float, bytes_per_s: float) -> float:
    """The shortest time that a roof allows: max(FLOPs / rate, bytes / bandwidth)."""
    return max(flops / flops_per_s, moved_bytes / bytes_per_s) * US


@dataclass(frozen=True)
class Layer:
    """weight [m, k] times [k, n]."""

    m: int  # sizes; of a linear layer outputs, tokens, inputs
    n: int
    k: int
    dtype: str  # one of DTYPES
    tf32: bool = False  # float32 products may use TF32

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            require(getattr(self, name) >= 1, f"--{name}", getattr(self, name), "a whole number from 1 up")
        require(self.dtype in DTYPES, "--dtype", self.dtype, ", ".join(DTYPES))
        require(not self.tf32 or self.dtype == "float32", "--tf32", self.dtype, "with --dtype float32")

    @property
    def item_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k

    def bytes_with(self, weight_bytes: float) -> float:
        """Read and written once, with a weight of so many bytes."""
        return weight_bytes + self.item_bytes * (float(self.k * self.n) + self.m * self.n)


@dataclass(frozen=True)
class Cost:
    """Of a layer."""

    flops: float
    moved_bytes: float
    flops_per_s: float  # peak of the units
    row: OpRow  # the same for the analytical model


class Pattern:
    """How zeros are arranged."""

    only_sparsity: float | None = None  # the one sparsity that the pattern has; None: any

    @property
    def name(self) -> str:
        raise NotImplementedError

    def refusal(self, layer: Layer, device: DeviceSpec) -> str | None:
        """Why such a layer cannot have it on the device; None: it can."""
        return None

    def cost(self, layer: Layer, device: DeviceSpec, sparsity: float) -> Cost:
        """What the layer costs at that sparsity; see the module."""
        raise NotImplementedError


@dataclass(frozen=True)
class Dense(Pattern):
    """No zeros."""

    name: str = "dense"
    only_sparsity: float | None = 0.0

    def cost(self, layer: Layer, device: DeviceSpec, sparsity: float) -> Cost:
        rate = device.flops_per_s[_units(layer, device, matrix=True)]
        weight_bytes = float(layer.item_bytes * layer.m * layer.k)
        return Cost(layer.flops, layer.bytes_with(weight_bytes), rate, _linear(layer, None))


@dataclass(frozen=True)
class Blocks(Pattern):
    """Blocks of edge x edge that are stored or not; 1: single values, unstructured sparsity."""

    edge: int = 1
    only_sparsity: float | None = None

    @property
    def name(self) -> str:
        return UNSTRUCTURED if self.edge == 1 else f"{BLOCK}{self.edge}"

    def refusal(self, layer: Layer, device: DeviceSpec) -> str | None:
        if layer.m % self.edge or layer.k % self.edge:
            return f"{self.edge} does not divide m, {layer.m}, and k, {layer.k}"
        return None

    def cost(self, layer: Layer, device: DeviceSpec, sparsity: float) -> Cost:
        density = 1.0 - sparsity
        retained = density * layer.m * layer.k
        where_bytes = index_bytes(retained / self.edge**2, layer.m / self.edge)
        rate = device.flops_per_s[_units(layer, device, matrix=self.edge >= SMALLEST_MATRIX_BLOCK)]
        row = _linear(layer, Sparsity(layer.m, layer.k, density, self.edge))
        return Cost(layer.flops * density, layer.bytes_with(layer.item_bytes * retained + where_bytes), rate, row)


@dataclass(frozen=True)
class TwoFour(Pattern):
    """Two of four neighbors along k are stored."""

    name: str = "2:4"
    only_sparsity: float | None = TWO_FOUR_SPARSITY

    def refusal(self, layer: Layer, device: DeviceSpec) -> str | None:
        if device.sparse_matrix_speedup <= 1.0:
            return f"{device.name} has no units for it"
        if not _units(layer, device, matrix=True).endswith("_matrix"):
            tf32 = "; --tf32 allows them" if layer.dtype == "float32" and not layer.tf32 else ""
            return f"{device.name} has no units for it in {layer.dtype}{tf32}"
        return f"{SIXTEENTHS} does not divide k, {layer.k}" if layer.k % SIXTEENTHS else None

    def cost(self, layer: Layer, device: DeviceSpec, sparsity: float) -> Cost:
        packed = layer.k * (10 if layer.item_bytes == 1 else 9) // SIXTEENTHS  # elements of a row, places among them
        rate = device.flops_per_s[_units(layer, device, matrix=True)]
        row = OpRow("aten::_cslt_sparse_mm", ((layer.m, packed), (layer.k, layer.n)), (layer.dtype,) * 2,
                    tf32=layer.tf32)  # fmt: skip
        return Cost(layer.flops * (1.0 - sparsity), layer.bytes_with(float(layer.item_bytes * layer.m * packed)),
                    rate * device.sparse_matrix_speedup * (1.0 - sparsity), row)  # fmt: skip


UNSTRUCTURED, BLOCK = "unstructured", "block"


@dataclass(frozen=True)
class SparsityPoint:
    """One pattern at one sparsity."""

    pattern: str  # its name
    sparsity: float  # share of the weight that is not stored
    cost: Cost  # FLOPs, bytes, peak rate
    roof_us: float  # no kernel is faster
    roof_speedup: float  # of the dense layer's roof_us over it
    bound: str  # "compute" or "memory"
    model_us: float | None  # by the analytical model; None: it has no answer
    model_speedup: float | None  # of the dense layer's model_us over it; None: one of them is not known


def sparsity_points(
    layer: Layer, device: DeviceSpec, requested: Sequence[tuple[Pattern, float]]
) -> tuple[SparsityPoint, ...]:
    """A point per pattern and sparsity, the dense layer first; patterns that refuse the layer must not be requested."""
    every: list[tuple[Pattern, float]] = [(Dense(), 0.0), *requested]
    costs = [pattern.cost(layer, device, sparsity) for pattern, sparsity in every]
    answers = [answer.latency_us for answer in answer_rows([cost.row for cost in costs], device)]
    bandwidth = device.memory_bandwidth_bytes_per_s
    roofs = [roof_us(cost.flops, cost.moved_bytes, cost.flops_per_s, bandwidth) for cost in costs]
    return tuple(
        SparsityPoint(
            pattern.name, sparsity, cost, us, roofs[0] / us,
            "compute" if cost.flops / cost.flops_per_s >= cost.moved_bytes / bandwidth else "memory",
            model_us, None if model_us is None or answers[0] is None else answers[0] / model_us,
        )
        for (pattern, sparsity), cost, us, model_us in zip(every, costs, roofs, answers, strict=True)
    )  # fmt: skip


def _units(layer: Layer, device: DeviceSpec, matrix: bool) -> str:
    key = rate_key(device, layer.dtype, layer.tf32) if matrix else layer.dtype
    return key if key in device.flops_per_s else rate_key_of(device, "", layer.dtype)


def _linear(layer: Layer, sparsity: Sparsity | None) -> OpRow:
    shapes = ((layer.n, layer.k), (layer.m, layer.k))
    return OpRow("aten::linear", shapes, (layer.dtype,) * 2, tf32=layer.tf32, sparsity=sparsity)
