"""Constants of the GEMM model: what they mean, their YAML form with version and provenance, the values that ship."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta

from gnnperf.analytic.constants_file import constants_from
from gnnperf.analytic.memory_bound.streams import WIDE_BUS_BITS
from gnnperf.core import AboveZero, FromZero, InputError, require
from gnnperf.hardware import DeviceSpec, conf_dir, read_yaml

VERSION = 6
FAMILIES = ("vector", "vector_batched", "matrix", "float8", "float8_block", "float4")

# Tiles [rows of the result, columns of the result] that a library chooses from. The first holds what CUTLASS 3 and
# cuBLAS ship for matrix units and SIMT; the others are the only tiles of some cuBLAS batched float32 kernels, as their
# names say in NeuSight's tables (ampere_sgemm_128x128, maxwell_sgemm_128x64, volta_sgemm_64x64 and 32x128).
TILE_SETS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "any": ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (64, 32),
            (32, 64), (32, 32), (16, 64), (16, 128), (64, 256)),
    "128x128": ((128, 128),),
    "64x128": ((64, 128),),
    "narrow": ((64, 64), (32, 128), (128, 32), (64, 128)),
}  # fmt: skip

# Tiles of sgl-kernel's float8 products (csrc/gemm/fp8_gemm_kernel.cu, Apache-2.0), which serving stacks run. Its code
# fixes them by the result: [at most so many rows, columns, rows of a tile, columns]. None divides k. Blackwell: what
# each of two SMs computes of a tile that they share.
SERVED_TILES: Mapping[str, tuple[tuple[float, float, int, int], ...]] = {
    "ada": ((16, 8192, 16, 64), (16, 16384, 32, 64), (16, inf, 16, 64), (64, 16384, 32, 64), (64, inf, 16, 64),
            (128, 16384, 64, 64), (128, inf, 32, 64), (256, 8192, 128, 64), (256, 16384, 64, 128), (256, inf, 128, 64),
            (inf, inf, 128, 128)),
    "hopper": ((256, inf, 64, 64), (inf, inf, 128, 128)),
    "blackwell": ((64, inf, 64, 64), (256, inf, 64, 128), (inf, inf, 128, 128)),
}  # fmt: skip
SERVED_DTYPE, ANY_TILES = "float8", -1  # ANY_TILES in place of a position in SERVED_TILES: the library chooses

# Whose float32 kernels cuBLAS runs on a generation, as their names say in NeuSight's tables and in traces of the others
# (maxwell_sgemm_128x64 on P100, volta_sgemm_32x128 on T4, ampere_sgemm_128x128 on L4 and H100). Later generations got
# kernels for matrix units only.
KERNELS_OF: Mapping[str, str] = {"pascal": "maxwell", "volta": "volta", "turing": "volta"}
LATEST_KERNELS = "ampere"
ANY_KERNELS = "any"
# Generations whose kernels on matrix units were measured. Workstation boards of Blackwell have no tensor memory: they
# multiply by warp-level instructions, as Ada does (CUDA programming guide, compute capability 12.0).
MATRIX_KERNELS, WORKSTATION_KERNELS = ("ampere", "ada", "hopper", "blackwell"), "ada"


@dataclass(frozen=True)
class Quantize:
    """The kernel before a product in 8 or 4 bits: scales and values of the 16-bit input, a row at a time.

    Serving stacks quantize activations as they come (per row: sgl_kernel's per-token quantization, per 128 elements
    before DeepGEMM, per 16 for nvfp4); published tables of such products hold both kernels.
    """

    start_clocks: AboveZero  # the shortest such kernel
    element_clocks: AboveZero  # of one SM, for each element of its rows
    rows_in_flight: AboveZero  # of one SM: what they hold beyond the cache is read twice


@dataclass(frozen=True)
class GemmConstants:
    """One family of kernels: shares of vendor numbers and clocks, so that a device enters as its numbers only."""

    compute_share: AboveZero  # sustained share of the peak FLOP rate, without a power limit
    flops_per_joule: AboveZero  # the power limit holds the rate down where peak / power limit is larger than this
    # long calls of a board with a published base clock are slower by (boost / base clock) to this power; not fitted:
    # 0.5, half way between the clocks, for GPUs that no one measured; 0: their power limit decides, down to that clock
    boost_power: FromZero
    throttle_us: AboveZero  # calls that are long against this feel the power limit; short ones are over before it acts
    load_bytes_per_flop: AboveZero  # operands that an SM takes in, in the time that it does one FLOP
    quantization: AboveZero  # 0: the last wave of tiles costs its share; 1: as much as a full one
    wave_clocks: AboveZero  # filling and draining the pipeline of one wave
    least_elements: AboveZero  # a tile that is the only one on its SM is never faster than one with so many elements
    # of the time that a tile's arithmetic takes, its latency by itself on its SM; above 1: one tile cannot use a whole
    # SM
    lone_tile_share: AboveZero
    # of the last-level cache: a multiple of memory's bandwidth for matrix units, bytes per clock of one SM for lanes
    l2_rate: AboveZero
    split_us: AboveZero  # adding up the parts of a product whose k is split over tiles, by a kernel of its own
    l2_share: AboveZero  # share of the last-level cache that operands can use
    l2_sharpness: AboveZero  # exponent of the change from cache to memory as the operands outgrow it
    # sustained share of the peak memory bandwidth; above 1: part of the bytes stays in the cache
    memory_share: AboveZero
    overlap_power: AboveZero  # p of the soft maximum of compute and memory
    # of what tiles read of the operands, the part that comes from DRAM again once the operands of the tiles in flight
    # outgrow the cache; above 1: with neighbors that no one requested
    reread_share: AboveZero
    far_share: AboveZero  # operands of tiles in flight that span this many caches miss in address translation ...
    far_slowdown: AboveZero  # ... and take up to so much longer
    floor_clocks: AboveZero  # the shortest kernel
    launch_us: AboveZero  # wait for the host, where a latency includes the launch
    launch_power: AboveZero  # p of the soft maximum of launch and kernel (1: one after the other)
    tiles: str  # key of TILE_SETS
    # generation whose kernels these are the constants of (`kernels_of`); ANY_KERNELS: of any device's
    kernels: str = ANY_KERNELS
    quantize: Quantize | None = None  # of the left operand; None: operands come as they are multiplied

    def __post_init__(self) -> None:
        require(self.tiles in TILE_SETS, "tiles", self.tiles, ", ".join(TILE_SETS))
        kernels = sorted({*KERNELS_OF.values(), LATEST_KERNELS, ANY_KERNELS, *MATRIX_KERNELS})
        require(self.kernels in kernels, "kernels", self.kernels, ", ".join(kernels))


Members = tuple[GemmConstants, ...]  # of one family: fits that differ in tiles or in what they saw


def kernels_of(architecture: str) -> str:
    """Whose float32 kernels run on a generation."""
    return KERNELS_OF.get(architecture, LATEST_KERNELS)


def of_tables(member: GemmConstants) -> bool:
    """Whether float32 kernels are a set of the tables; others are LATEST_KERNELS at another energy per FLOP."""
    return member.kernels == LATEST_KERNELS or member.kernels not in MATRIX_KERNELS


def matrix_kernels_of(device: DeviceSpec) -> str:
    """The generation whose kernels on matrix units a device runs."""
    board = device.memory_bus_bits is not None and device.memory_bus_bits <= WIDE_BUS_BITS
    return WORKSTATION_KERNELS if device.architecture == "blackwell" and board else device.architecture or ""


def members_for(members: Members, *kernels: str) -> Members:
    """Those of the first kernels that were measured, else those of any; all, where none are."""
    for own in (*kernels, ANY_KERNELS):
        if result := tuple(m for m in members if m.kernels == own):
            return result
    return members


def typical(members: Members, number: str) -> float:
    """Geometric mean over members of one of their numbers, as their predictions are averaged."""
    return float(np.exp(np.mean([np.log(getattr(member, number)) for member in members])))


@cache
def default_gemm_constants() -> Mapping[str, Members]:
    """Family -> the members that ship, conf/analytic/gemm.yaml."""
    return load_gemm_constants(conf_dir("analytic") / "gemm.yaml")


def load_gemm_constants(path: Path) -> Mapping[str, Members]:
    """Family -> members.

    Raises InputError: not readable, another version, an unknown or missing key, a number out of range.
    """
    raw = read_yaml(path)
    if raw.get("version") != VERSION:
        remedy = "fit again: python -m research.fitting.gemm"
        raise InputError(f"version {raw.get('version')!r}", where=str(path), allowed=str(VERSION), remedy=remedy)
    result = constants_from(raw, _GemmFile, str(path))
    return {family: getattr(result, family) for family in FAMILIES}


@dataclass(frozen=True)
class _GemmFile:
    version: int
    provenance: str
    vector: Annotated[Members, Meta(min_length=1)]
    vector_batched: Annotated[Members, Meta(min_length=1)]
    matrix: Annotated[Members, Meta(min_length=1)]
    float8: Annotated[Members, Meta(min_length=1)]
    float8_block: Annotated[Members, Meta(min_length=1)]
    float4: Annotated[Members, Meta(min_length=1)]
