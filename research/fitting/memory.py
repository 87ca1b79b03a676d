"""Fit MemoryConstants on op tables of eager calls between events: first the streams, then the kernels over rows.

Rows have the columns `table` (add, mul, ..., softmax, ln), `device`, `rows`, `columns`, `moved_bytes`, `latency_us`.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.fitting.memory [OUT.yaml]

writes conf/analytic/memory_bound.yaml, from NeuSight's tables (MIT) of every device in the catalog. To judge the model,
`python -m research.benchmarks.memory_bound` fits again without the generation that it is judged on.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from gnnperf.analytic.memory_bound.constants import (
    MEMORY_BOUND_FILE,
    EventGap,
    MemoryConstants,
    MemorySystem,
    RowKernel,
    default_memory_constants,
)
from gnnperf.analytic.memory_bound.streams import OTHER, elementwise_us, missing_share
from gnnperf.analytic.normalization import WARP_COLUMNS, layer_norm_us, softmax_us
from gnnperf.hardware import DeviceSpec
from research.benchmarks._op_tables import memory_rows
from research.fitting.files import requested_file, write_constants
from research.fitting.logs import fit_logs
from research.tables.observation import between_events_us

PROVENANCE = (
    "fitted by research/fitting/memory.py on the elementwise, softmax and layer norm tables of "
    "sitar-lab/NeuSight "
    "(MIT; float32 forward, torch 2.1, {devices}). rereads, overlap_power and lane_cycles.other follow from how the "
    "kernels are written and are not fitted; lane_cycles of CatArrayBatchedCopy are "
    "fitted on public traces, those after it, index_cycles, clocks, programs and convolution by "
    "research/fitting/recorded.py on datasets/h200. "
    "Do not judge the model on those devices with these constants."
)
LAYER_NORM, SOFTMAX = "ln", "softmax"
HEAVY = {"pow": "pow", "powu": "pow"}  # tables whose op costs more instructions than an add: op of the lane cycles
DIGITS = 4  # significant, in the file
ITEM_BYTES = 4
FLOOR_QUANTILE = 0.05  # of a table's rows by size: these are the call's own time, whatever the kernel does
LOOP = 1.0  # turns: the same call again and again
EVERY = 7  # of the rows is enough for a handful of constants
SHIPPED = default_memory_constants()  # what research.fitting.recorded fits is kept
START = MemoryConstants(
    stream_share=0.8, cache_share=0.9, partitioned_share=0.65, cache_bytes_per_clock=16.0,
    lane_cycles={**SHIPPED.lane_cycles, OTHER: 4.0, "pow": 30.0}, clocks=SHIPPED.clocks,
    attention=SHIPPED.attention, index_cycles=SHIPPED.index_cycles, programs=SHIPPED.programs,
    convolution=SHIPPED.convolution,
    rows={
        "layer_norm": RowKernel(1.0, 400.0, 0.5, 12.0, 0.9, 3.0),
        "softmax_warp": RowKernel(0.0, 50.0, 0.3, 16.0, 0.85, 3.0),
        "softmax_block": RowKernel(1.0, 200.0, 1.0, 16.0, 0.9, 3.0),
    },
)  # fmt: skip
START_ISSUE_SHARE = 0.6
Gaps = Mapping[tuple[str, str], float]  # (device, table) -> us
Loaded = tuple[MemoryConstants, float]  # constants, issue share


def call_times_us(rows: pd.DataFrame) -> dict[tuple[str, str], float]:
    """(device, table) -> host time of one call: the median of the smallest rows."""
    result = {}
    for (device, table), part in rows.groupby(["device", "table"]):
        small = part["moved_bytes"] <= part["moved_bytes"].quantile(FLOOR_QUANTILE)
        result[str(device), str(table)] = float(part.loc[small, "latency_us"].median())
    return result


def device_us(rows: pd.DataFrame, table: str, device: DeviceSpec, constants: MemoryConstants) -> np.ndarray:
    """The kernel's own time [n] us for rows of one table, operands resident as far as the cache holds them."""
    num_rows, columns = rows["rows"].to_numpy(float), rows["columns"].to_numpy(float)  # [n]
    if table == LAYER_NORM:
        return layer_norm_us(num_rows, columns, ITEM_BYTES, device, constants, turns=LOOP)
    if table == SOFTMAX:
        return softmax_us(num_rows, columns, ITEM_BYTES, device, constants, turns=LOOP, staged=False)
    moved = rows["moved_bytes"].to_numpy(float)  # [n]
    missing = missing_share(moved, LOOP, device, constants)
    return elementwise_us(HEAVY.get(table, OTHER), num_rows * columns, moved, device, constants, missing)


def predicted_us(rows: pd.DataFrame, device: DeviceSpec, constants: MemoryConstants) -> np.ndarray:
    """What a pair of events should read [n] us, with the constants' gap of each table."""
    result = np.full(len(rows), np.nan)
    for table in rows["table"].unique():
        here = (rows["table"] == table).to_numpy()
        own_us = device_us(rows[here], str(table), device, constants)
        result[here] = between_events_us(own_us, constants.gaps[str(table)])
    return result


def fit_memory_constants(rows: pd.DataFrame, devices: Mapping[str, DeviceSpec], provenance: str) -> MemoryConstants:
    """Constants from every row given."""
    calls = call_times_us(rows)
    thinned = pd.concat([part.iloc[::EVERY] for _, part in rows.groupby(["device", "table"])])
    is_row = thinned["table"].isin((LAYER_NORM, SOFTMAX))
    streams, shares = _fit_streams(thinned[~is_row], devices, calls)
    over_rows = thinned[is_row]
    constants, share_of = _fit_rows(over_rows, devices, calls, streams)
    generation = over_rows["device"].map(lambda name: devices[str(name)].architecture)
    rows_of = {str(name): _fit_rows(part, devices, calls, constants)[0].rows
               for name, part in over_rows.groupby(generation) if (part["columns"] > WARP_COLUMNS).any()}  # fmt: skip
    gaps = _typical(calls, {**shares, **share_of})
    return replace(constants, rows_of=rows_of, gaps=gaps, provenance=provenance)


def _fit_rows(
    rows: pd.DataFrame, devices: Mapping[str, DeviceSpec], calls: Gaps, constants: MemoryConstants
) -> tuple[MemoryConstants, dict[str, float]]:
    """Kernels over rows, from where `constants` have them; a kernel without rows stays."""
    long, shares = rows["columns"] > WARP_COLUMNS, dict[str, float]()
    norms = rows["table"] == LAYER_NORM
    for name, here in (("layer_norm", norms), ("softmax_warp", ~norms & ~long), ("softmax_block", ~norms & long)):
        if not here.any():
            continue
        constants, share = _fit_row_kernel(name, rows[here], devices, calls, constants)
        shares |= dict.fromkeys(map(str, rows.loc[here, "table"].unique()), share)
    return constants, shares


def _typical(calls: Gaps, shares: Mapping[str, float]) -> dict[str, EventGap]:
    """Median over devices: whose host a device sits in cannot be known."""
    by_table: dict[str, list[float]] = {}
    for (_, table), us in calls.items():
        by_table.setdefault(table, []).append(us)
    return {table: EventGap(float(np.median(us)), min(shares[table], 1.0)) for table, us in sorted(by_table.items())}


def _fit(
    rows: pd.DataFrame, devices: Mapping[str, DeviceSpec], calls: Gaps, build: Callable[[np.ndarray], Loaded],
    start: np.ndarray,
) -> Loaded:  # fmt: skip
    parts = [(str(d), str(t), part) for (d, t), part in rows.groupby(["device", "table"])]
    measured = [np.log(part["latency_us"].to_numpy(float)) for *_, part in parts]

    def residuals(values: np.ndarray) -> np.ndarray:
        constants, share = build(values)
        return np.concatenate([
            np.log(between_events_us(device_us(part, table, devices[device], constants),
                                     EventGap(calls[device, table], share))) - log_us
            for (device, table, part), log_us in zip(parts, measured, strict=True)
        ])  # fmt: skip

    return build(fit_logs(residuals, start))


def _fit_streams(
    rows: pd.DataFrame, devices: Mapping[str, DeviceSpec], calls: Gaps
) -> tuple[MemoryConstants, dict[str, float]]:
    """One share of the bandwidth per device, which is one per memory; all else is common."""
    measured = sorted(map(str, rows["device"].unique()))
    known = [name for name in measured if devices[name].memory_bus_bits and devices[name].memory_pin_bits_per_s]

    def build(values: np.ndarray) -> Loaded:
        retained, parts, per_clock, heavy, issue, *shares = map(float, values)
        cycles = {**START.lane_cycles, "pow": heavy}
        systems = {one.name: MemorySystem(float(one.memory_bus_bits or 0), float(one.memory_pin_bits_per_s or 0), share)
                   for one, share in ((devices[name], share) for name, share in zip(measured, shares, strict=True)
                                      if name in known)}  # fmt: skip
        result = replace(START, stream_share=float(np.exp(np.mean(np.log(shares)))), cache_share=retained,
                        partitioned_share=parts, cache_bytes_per_clock=per_clock, lane_cycles=cycles,
                        systems=systems)  # fmt: skip
        return result, issue

    start = np.array([START.cache_share, START.partitioned_share, START.cache_bytes_per_clock,
                      START.lane_cycles["pow"], START_ISSUE_SHARE, *[START.stream_share] * len(measured)])  # fmt: skip
    constants, issue = _fit(rows, devices, calls, build, start)
    return constants, dict.fromkeys(map(str, rows["table"].unique()), issue)


def _fit_row_kernel(
    name: str, rows: pd.DataFrame, devices: Mapping[str, DeviceSpec], calls: Gaps, constants: MemoryConstants
) -> Loaded:
    """All but the rereads and the overlap power, which follow from how the kernel is written."""
    first = constants.rows[name]

    def build(values: np.ndarray) -> Loaded:
        per_row, per_element, in_flight, share, issue = map(float, values)
        kernel = replace(first, cycles_per_row=per_row, cycles_per_element=per_element,
                         rows_in_flight_per_sm=in_flight, bandwidth_share=share)  # fmt: skip
        return replace(constants, rows={**constants.rows, name: kernel}), issue

    start = np.array([first.cycles_per_row, first.cycles_per_element, first.rows_in_flight_per_sm,
                      first.bandwidth_share, START_ISSUE_SHARE])  # fmt: skip
    return _fit(rows, devices, calls, build, start)


def main() -> None:
    """Fit and write."""
    out = requested_file(MEMORY_BOUND_FILE)
    rows, devices = memory_rows()
    constants = fit_memory_constants(rows, devices, PROVENANCE.format(devices=", ".join(sorted(devices))))
    write_constants(out, constants, DIGITS)
    print(out.read_text())


if __name__ == "__main__":
    main()
