"""Compute nodes: launch floor plus a soft roofline (Williams, Waterman, Patterson 2009)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from gnnperf.analytic.constants_file import shipped
from gnnperf.core import AboveZero, FromZero, OpFamily
from gnnperf.hardware import DeviceSpec

MATRIX_FAMILIES = (OpFamily.GEMM, OpFamily.CONV, OpFamily.ATTENTION)
# Matrix products in float32 do not use TF32 unless requested, convolutions do: by default
# torch.backends.cuda.matmul.allow_tf32 is False and torch.backends.cudnn.allow_tf32 is True (torch 1.12 and later).
FLOAT32_MATRIX_FAMILIES = (OpFamily.CONV,)
# Their matrix units multiply in float32 itself, so rocBLAS uses them for it (AMD CDNA and CDNA 2 white papers).
FLOAT32_UNITS, FLOAT32_MATRIX = ("cdna", "cdna2"), "float32_matrix"
CDNA_FILE = "cdna.yaml"
OTHERS = "other"  # in CdnaConstants: families without an entry
SLOWER_THAN = {"float16": "float32", "bfloat16": "float32", "float8": "float16", "int8": "float32"}


@cache
def _rate_key(family: str, dtype: str) -> tuple[str, ...]:
    plain = "float8" if dtype.startswith("float8") else "float64" if dtype in ("float64", "complex128") else dtype
    matrix = family in (FLOAT32_MATRIX_FAMILIES if plain == "float32" else MATRIX_FAMILIES)
    chain = []
    while plain:
        chain += [f"{plain}_matrix", plain] if matrix else [plain]
        plain = SLOWER_THAN.get(plain, "")
        matrix = matrix and plain != "float32"
    return (*chain, "float32")


def has_units(device: DeviceSpec, family: str, dtype: str | None) -> bool:
    """Whether a device multiplies in a dtype at all: 8- and 4-bit floats need matrix units of their own."""
    unit = (dtype or "")[: len("float8")]
    needed = device.kind == "gpu" and family in MATRIX_FAMILIES and unit in ("float8", "float4")
    return not needed or f"{unit}_matrix" in device.flops_per_s


def flops_per_s(device: DeviceSpec, family: str, dtype: str | None) -> float:
    """Sustained FLOP rate for ops of one family and dtype; dtypes without a rate of their own use float32's."""
    return device.flops_per_s[rate_key_of(device, family, dtype)] * device.sustained_flops_share


def rate_key_of(device: DeviceSpec, family: str, dtype: str | None) -> str:
    """Key of DeviceSpec.flops_per_s: of the units that ops of one family and dtype run on."""
    in_float32 = family in MATRIX_FAMILIES and (dtype or "float32") == "float32"
    if in_float32 and device.architecture in FLOAT32_UNITS and FLOAT32_MATRIX in device.flops_per_s:
        return FLOAT32_MATRIX
    for key in _rate_key(family, dtype or "float32"):
        if key in device.flops_per_s:
            return key
    raise KeyError(f"device {device.name} has no rate for float32")  # the catalog's loader guarantees one


def compute_us(
    flops: np.ndarray, moved_bytes: np.ndarray, rate_per_s: np.ndarray, device: DeviceSpec, power: float
) -> np.ndarray:
    """Latency of compute nodes.

    latency = floor + (compute^p + memory^p)^(1/p). With FLOPs unknown only the bytes count, and the reverse.
    """
    bandwidth = device.memory_bandwidth_bytes_per_s * device.sustained_bandwidth_share
    compute = flops / rate_per_s * 1e6  # [n] us
    memory = moved_bytes / bandwidth * 1e6  # [n] us
    soft = soft_maximum(np.nan_to_num(compute), np.nan_to_num(memory), power)
    return np.where(np.isnan(compute) & np.isnan(memory), np.nan, device.launch_floor_us + soft)


def soft_maximum(compute: np.ndarray, memory: np.ndarray, power: float) -> np.ndarray:
    """[n] (compute^p + memory^p)^(1/p); 0 where both are 0."""
    largest = np.maximum(compute, memory)  # [n]
    scale = np.where(largest > 0, largest, 1.0)  # the ratio keeps the powers in range
    return np.asarray(largest * ((compute / scale) ** power + (memory / scale) ** power) ** (1.0 / power))


@dataclass(frozen=True)
class FamilyShares:
    """What kernels of one family reach on AMD's CDNA GPUs."""

    compute_share: AboveZero  # of the peak rate
    bandwidth_share: AboveZero  # of the data sheet's
    start_us: FromZero  # of each kernel, whatever it does


@dataclass(frozen=True)
class CdnaConstants:
    """Constants of AMD's CDNA GPUs (MI100 to MI355X)."""

    # kind -> p of (compute^p + memory^p)^(1/p), with OTHERS; convolutions compute and turn their tensors one by one: 1
    roofline_power: Mapping[str, AboveZero]
    shares: Mapping[str, FamilyShares]  # of `cdna_kind`, with OTHERS
    provenance: str

    def of(self, kind: str) -> FamilyShares:
        """Of one kind."""
        return self.shares.get(kind, self.shares[OTHERS])


default_cdna_constants = shipped(CDNA_FILE, CdnaConstants)


def cdna_kind(op_name: str, family: str, dtype: str | None) -> str:
    """Key of CdnaConstants.shares: the family, but for batch norms and products in float32."""
    if "batch_norm" in op_name:
        return "batch_norm_backward" if "backward" in op_name else "batch_norm"
    if family == OpFamily.GEMM and (dtype or "float32") == "float32":
        return "bmm_float32" if "bmm" in op_name else "gemm_float32"
    return family


def shares_us(
    flops: np.ndarray, moved_bytes: np.ndarray, rate_per_s: np.ndarray, num_kernels: np.ndarray, shares: FamilyShares,
    bandwidth_per_s: np.ndarray | float, power: float,
) -> np.ndarray:  # fmt: skip
    """Latency [n] of calls of one kind with all their kernels: starts + (compute^p + memory^p)^(1/p); NaN: no work."""
    compute = np.nan_to_num(flops / (rate_per_s * shares.compute_share) * 1e6)  # [n] us
    memory = np.nan_to_num(moved_bytes / (bandwidth_per_s * shares.bandwidth_share) * 1e6)  # [n] us
    soft = soft_maximum(compute, memory, power)
    return np.where(soft > 0, num_kernels * shares.start_us + soft, np.nan)
