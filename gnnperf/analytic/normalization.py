"""Layer norm, RMS norm and softmax: memory bound, with rows that are read again.

A block (or warp) works on one row. Where the row stays in registers it is read once. Else it is read again, from the
last-level cache if the rows in flight on all SMs fit there, from DRAM if not. A row also costs
instructions, however short it is, and blocks come in waves: SMs x rows in flight at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from gnnperf.analytic.kernels.call import Array, KernelCall, Setting, column, known_rows, sized
from gnnperf.analytic.memory_bound import streams
from gnnperf.analytic.memory_bound.constants import MemoryConstants, RowKernel
from gnnperf.graph import UnknownCost
from gnnperf.hardware import DeviceSpec

REUSE_SHARPNESS = 3.0  # rows in flight spread over their passes: the step from hits to misses is softer than a sweep's
WARP_COLUMNS, WARP_ROW_BYTES = 1024, 4096  # torch's SoftMax.cu keeps such rows in registers, read once
WARP_THREADS = 32.0
VECTOR_BYTES = 16  # of one load
# Before Ampere, rows that no sector starts with take so much more traffic of a warp, whose loads of 128 bytes touch 5
# sectors and not 4, partly from caches: mean over NeuSight's tables of V100, T4, P100 and P4 (1.12, 1.07, 1.05, 1.03).
SECTOR_BYTES, UNALIGNED_TRAFFIC = 32, dict.fromkeys(("pascal", "volta", "turing"), 1.067)
# Threads walk down all rows to sum scale's and shift's gradients, unless there are many rows and few columns
# (layer_norm_kernel.cu). `clocks` has those of a row.
SPLIT_ROWS, NORM_ROW = 64 * 1024, "layer_norm_row"
SHARED_BYTES = 48 * 1024  # of a block (CUDA C++ programming guide), what SoftMax.cu compares a row with
WORD_BYTES = 4  # as long do elements take that no vector load can read (TraceLens, MIT: bf16 rows of 3137 and 5185)
NORM_BACKWARD = (2, 1)  # reads the gradient and the input, writes the input's gradient
SOFTMAX_BACKWARD = (2, 1)  # reads the gradient and the output


def row_kernel_us(
    rows: np.ndarray, columns: np.ndarray, item_bytes: int | np.ndarray, device: DeviceSpec, constants: MemoryConstants,
    kernel: RowKernel, tensors: tuple[int, int] = (1, 1), turns: np.ndarray | float = np.inf,
    loads: np.ndarray | float = 1.0,
) -> np.ndarray:  # fmt: skip
    """Device time [n] us of a kernel over rows: floor + (issue^p + memory^p)^(1/p).

    issue  = rows of one SM, in whole waves and a last one, x (cycles per row + cycles per element x columns) / clock
    memory = (read + written + read x rereads x share that left the cache) / bandwidth

    `tensors`: how many [rows, columns] are read and written. `turns` [n] as of KernelCall; 1: the same call in a loop,
    whose operands are in the cache as far as it holds them.
    """
    num_read, num_written = tensors
    item = np.asarray(item_bytes, float)
    tensor_bytes = rows * columns * item  # [n]
    in_flight = device.num_sms * kernel.rows_in_flight_per_sm * columns * item * (num_read + num_written)
    ratio = streams.cache_bytes(device, constants) / np.maximum(in_flight, 1.0)  # [n]
    left = 1.0 / (1.0 + ratio**REUSE_SHARPNESS)  # [n]
    moved = tensor_bytes * (num_read + num_written + num_read * kernel.rereads * left)  # [n]
    missing = streams.missing_share(tensor_bytes * (num_read + num_written), turns, device, constants)  # [n]
    memory = streams.traffic_us(moved, missing, device, constants) / kernel.bandwidth_share  # [n]
    issue = _issue_us(rows, columns * loads, device, kernel)  # [n]
    p = kernel.overlap_power
    return device.launch_floor_us + (memory**p + issue**p) ** (1.0 / p)


def _issue_us(rows: np.ndarray, columns: np.ndarray, device: DeviceSpec, kernel: RowKernel) -> np.ndarray:
    """A warp's instruction occupies its lanes for a clock: with twice the lanes, an SM is done in half the clocks."""
    at_a_time = device.num_sms * kernel.rows_in_flight_per_sm
    lanes = (device.lanes_per_sm or streams.DEFAULT_LANES_PER_SM) / streams.DEFAULT_LANES_PER_SM
    cycles = (kernel.cycles_per_row + kernel.cycles_per_element * columns) / lanes  # [n]
    whole = np.floor(rows / at_a_time)  # [n] waves that fill every SM
    last = np.ceil((rows - whole * at_a_time) / device.num_sms)  # [n] rows of one SM in the wave that does not
    on_sm = (whole + np.minimum(last / kernel.rows_in_flight_per_sm, 1.0)) * kernel.rows_in_flight_per_sm  # [n]
    return on_sm * cycles / device.clock_hz * streams.US


def layer_norm_us(
    rows: np.ndarray, columns: np.ndarray, item_bytes: int, device: DeviceSpec, constants: MemoryConstants,
    turns: np.ndarray | float = np.inf,
) -> np.ndarray:  # fmt: skip
    """Forward [n] us: statistics, then a second pass over the row (torch's vectorized_layer_norm_kernel)."""
    kernel = constants.row_kernel("layer_norm", device.architecture)
    return row_kernel_us(rows, columns, item_bytes, device, constants, kernel, turns=turns)


def layer_norm_backward_us(
    rows: np.ndarray, columns: np.ndarray, item_bytes: int, device: DeviceSpec, constants: MemoryConstants,
    turns: np.ndarray | float = np.inf,
) -> np.ndarray:  # fmt: skip
    """Backward [n] us: a row kernel for the input's gradient, then column sums for scale and shift over both inputs."""
    kernel = constants.row_kernel("layer_norm", device.architecture)
    grad_input = row_kernel_us(rows, columns, item_bytes, device, constants, kernel, NORM_BACKWARD, turns)
    moved = 2.0 * rows * columns * item_bytes  # [n]
    sums = streams.stream_us(moved, device, constants, streams.missing_share(moved, turns, device, constants))  # [n]
    split = (rows > SPLIT_ROWS) & (columns / WARP_THREADS < device.num_sms / 2)  # [n]
    walk = device.launch_floor_us + rows * constants.clocks[NORM_ROW] / device.clock_hz * streams.US  # [n]
    return grad_input + np.where(split, sums, np.maximum(sums, walk))


def softmax_us(
    rows: np.ndarray, columns: np.ndarray, item_bytes: int, device: DeviceSpec, constants: MemoryConstants,
    backward: bool = False, turns: np.ndarray | float = np.inf, staged: bool = True,
) -> np.ndarray:  # fmt: skip
    """[n] us: short rows stay in a warp's registers, long ones are read again for maximum, sum and result.

    `staged`: forward, long rows that start where vectors do stay in shared memory and are read once, as fast as a
    warp's (cunn_SoftMaxForwardSmem, torch 2.1 and later; the op tables that constants were fitted on are older).

    Rows shorter than a warp share one (torch's PersistentSoftmax.cuh: as many threads as the next power of two), and
    so its instructions: they cost what fewer rows of a whole warp do. Long rows that do not start where vectors do are
    read element by element: in 16 bits they take as long as in 32.
    """
    short = (columns <= WARP_COLUMNS) & (columns * item_bytes <= WARP_ROW_BYTES)  # [n]
    threads = np.minimum(2.0 ** np.ceil(np.log2(np.maximum(columns, 1.0))), WARP_THREADS)  # [n] of a row
    sharing = WARP_THREADS / threads  # [n] rows in a warp
    tensors = SOFTMAX_BACKWARD if backward else (1, 1)
    aligned = columns * item_bytes % VECTOR_BYTES == 0  # [n]
    in_block = np.where(aligned, item_bytes, max(item_bytes, WORD_BYTES))  # [n]
    more = UNALIGNED_TRAFFIC.get(device.architecture or "", 1.0)
    in_warp = item_bytes * np.where(columns * item_bytes % SECTOR_BYTES == 0, 1.0, more)  # [n]
    warp, block = (
        row_kernel_us(rows / s, columns * s, item, device, constants,
                      constants.row_kernel(name, device.architecture), tensors, turns, loads)
        for name, s, item, loads in (("softmax_warp", sharing, in_warp, 1.0),
                                     ("softmax_block", 1.0, in_block, np.minimum(in_block / WORD_BYTES, 1.0)))
    )  # fmt: skip
    if staged and not backward:
        once = constants.row_kernel("softmax_warp", device.architecture)
        fits = aligned & (columns * item_bytes <= SHARED_BYTES)  # [n]
        block = np.where(fits, row_kernel_us(rows, columns, item_bytes, device, constants, once, turns=turns), block)
    return np.where(short, warp, block)


# op -> form, argument of the activation, argument of the scale (its elements are a row); None: the last axis is
FORMS: Mapping[str, tuple[Callable[..., np.ndarray], int, int | None]] = {
    **{f"aten::{name}": (layer_norm_us, 0, 2)
       for name in ("native_layer_norm", "layer_norm", "rms_norm", "_fused_rms_norm")},
    "aten::native_layer_norm_backward": (layer_norm_backward_us, 1, 5),
    "aten::_fused_rms_norm_backward": (layer_norm_backward_us, 1, 4),
    **dict.fromkeys(("FusedLayerNormAffineFunction", "FusedRMSNormAffineFunction"), (layer_norm_us, 0, 1)),  # apex
    **dict.fromkeys(("FusedLayerNormAffineFunctionBackward", "FusedRMSNormAffineFunctionBackward"),
                    (layer_norm_backward_us, 0, None)),
    **{f"aten::{name}": (softmax_us, 0, None)
       for name in ("_softmax", "_log_softmax", "_safe_softmax", "softmax", "log_softmax")},
    **dict.fromkeys(("aten::_softmax_backward_data", "aten::_log_softmax_backward_data"),
                    (partial(softmax_us, backward=True), 1, None)),
}  # fmt: skip


def rows_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us; NaN: another op (batch and group norms), or shapes not recorded.

    Softmax is taken to run over the last axis; the axis is not on a node.
    """
    sizes = sized(calls, _rows_and_columns, 2)
    result = np.full(len(calls), np.nan)
    kinds = [(FORMS[c.plain_name][0], c.item_bytes) if c.plain_name in FORMS else None for c in calls]
    turns = column(calls, "turns")
    for kind in {k for k in kinds if k is not None}:
        same = np.array([k == kind for k in kinds])
        rows = np.intersect1d(known_rows(sizes), np.flatnonzero(same))
        form, item = kind
        result[rows] = form(sizes[rows, 0], sizes[rows, 1], item, setting.device, setting.memory, turns=turns[rows])
    return result


def _rows_and_columns(call: KernelCall) -> tuple[float, float]:
    if call.plain_name not in FORMS:
        raise UnknownCost
    _, activation, scale = FORMS[call.plain_name]
    parsed = call.parsed()
    x = parsed.tensor(activation)
    columns = x.shape[-1]
    if scale is not None and (result := parsed.optional(scale)) is not None:
        columns = result.numel
    if not columns or x.numel % columns:
        raise UnknownCost
    return float(x.numel // columns), float(columns)
