"""`gnnperf search TRACE`: the recorded run on other numbers of devices, with other batches of a device.

trace --batch, tensor, world_size--> edited steps, as `gnnperf what-if` predicts them --> time of a sample, memory, cost
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, each
from gnnperf.predict import Request, StepPrediction, requested_graph, setup_of
from gnnperf.report.search.search_text import GIB, milliseconds, rounded

COSTS = ("sample_us", "peak_bytes", "sample_device_us")  # what should be small
PLACE_OF = {"step": "sample_us", "tokens_per_s": "sample_us", "cost": "sample_device_us"}
MOST_SENTENCES = 3


@dataclass(frozen=True)
class TraceSettings:
    """What is tried, every value with every other one."""

    devices: Sequence[int]  # of the job
    batches: Sequence[float]  # of a device, over the recorded one; with tensor parallelism of its ranks together
    tensor: Sequence[int]  # ranks that divide the layers of a replica
    data_parallel: int | None  # ranks of a data-parallel group now, where the trace does not show them


@dataclass(frozen=True)
class TraceSearch:
    """The result."""

    recorded: StepPrediction  # the step without edits, on the hardware that is requested
    # [settings] devices, tensor, batch_factor, step_us, is_lower_bound, sample_us (of the job, per recorded sample of a
    # device), sample_device_us (of all devices), speed (1: as recorded), samples_per_s, gpu_hours_per_step,
    # usd_per_million_samples, peak_bytes (NaN: unknown), network_share (of the critical path), fits (None: unknown),
    # on_front; those that fit, or may, first, the best of them first
    table: pd.DataFrame
    refused: Mapping[str, str]  # setting -> why it cannot be predicted
    unknown: tuple[str, ...]  # sentences: what predictions of the best setting take for granted


def search_trace(
    request: Request, settings: TraceSettings, by: str, reserve_share: float, memory_bytes: float | None
) -> TraceSearch:
    """Every setting, of a request without edits.

    `by`: key of PLACE_OF; `reserve_share`: of a device's memory that tensors do not get; `memory_bytes`: of a device,
    None: as the catalog has it. Raises InputError: no setting can be predicted, or none fits.
    """
    graph = requested_graph(request)
    setup = setup_of(graph, request)
    prediction = setup.predict()
    recorded = setup.step_prediction(prediction)
    ranks = {} if settings.data_parallel is None else {"data_parallel": settings.data_parallel}
    rows, unknown, errors = [], list[tuple[str, ...]](), dict[str, InputError]()
    tried = list(product(settings.devices, settings.tensor, settings.batches))
    for count, tensor, batch in each(tried, "predicting", "settings"):
        edits = [*([{"batch": {"factor": batch}}] if batch != 1 else []),
                 *([{"tensor": {"ranks": tensor}}] if tensor != 1 else []),
                 {"world_size": {"ranks": count, **ranks}}]  # fmt: skip
        try:
            own = setup_of(graph, replace(request, whatif=edits)).step_prediction(prediction).whatif
        except InputError as error:
            errors[f"{count} devices{f', tensor {tensor}' if tensor > 1 else ''}, batch x {batch:g}"] = error
            continue
        assert own is not None, "edits are requested"
        rows.append(_row(own.prediction, count, tensor, batch, memory_bytes, reserve_share))
        unknown.append(own.unknown)
    if not rows:
        raise next(iter(errors.values()))
    table = pd.DataFrame(rows).assign(speed=lambda t: recorded.step_time_us / graph.world_size / t["sample_us"])
    if table["fits"].eq(False).all():
        raise InputError(f"no setting fits: the smallest takes {table['peak_bytes'].min() / GIB:.3g} GiB per device",
                         where=f"trace {graph.name}", remedy="--batches 0.5, or devices with more memory")  # fmt: skip
    costs = table[list(COSTS)].fillna(np.inf).to_numpy(np.float64)  # [settings, 3]; unknown memory beats none
    beaten = np.array([((costs <= own).all(axis=1) & (costs < own).any(axis=1)).any() for own in costs])
    table = table.assign(on_front=~beaten, too_large=table["fits"].eq(False), unknown=pd.Series(unknown, dtype=object))
    table = table.sort_values(["too_large", PLACE_OF[by]]).reset_index(drop=True)
    of_best = table["unknown"].iloc[0]
    return TraceSearch(recorded, table.drop(columns=["too_large", "unknown"]),
                       {name: str(error) for name, error in errors.items()}, of_best)  # fmt: skip


def _row(
    step: StepPrediction, devices: int, tensor: int, batch: float, memory_bytes: float | None, reserve_share: float
) -> dict[str, object]:
    peaks, rates, us = step.peak_memory, step.throughput, step.step_time_us * tensor / batch
    assert rates is not None, "predictions of requests have rates"
    known = tensor == 1 and bool(peaks) and not any(one.peak.missing for one in peaks)
    peak = max((one.peak.peak_bytes for one in peaks), default=0)
    memory = memory_bytes or (peaks[0].device_bytes if peaks else None)
    return {
        "devices": devices, "tensor": tensor, "batch_factor": batch,
        "step_us": step.step_time_us, "is_lower_bound": step.is_lower_bound,
        "sample_us": us / devices, "sample_device_us": us, "samples_per_s": rates.samples_per_s,
        "gpu_hours_per_step": rates.gpu_hours_per_step, "usd_per_million_samples": rates.usd_per_million_samples,
        "peak_bytes": float(peak) if known else np.nan,
        "network_share": step.critical_path_share.get(str(NodeType.COLLECTIVE), 0.0),
        "fits": None if memory is None or not known else peak <= (1.0 - reserve_share) * memory,
    }  # fmt: skip


def lines(result: TraceSearch, top: int) -> Iterator[str]:
    """Everything for a reader."""
    step, table = result.recorded, result.table
    graph, large = step.prediction.graph, int(table["fits"].eq(False).sum())
    yield f"{graph.name} on {step.hardware} (cluster {step.cluster}), from {graph.world_size} recorded ranks: " \
          f"{milliseconds(step.step_time_us)} with their setting"  # fmt: skip
    yield f"{len(table)} settings, of which {large} need more memory than a device has"
    priced = table["usd_per_million_samples"].notna().any()
    cost = "usd_per_million_samples" if priced else "gpu_hours_per_step"
    yield ""
    yield ("    devices  tensor  batch   step         speed  samples/s  network  memory      "
           f"{'USD/M samples' if priced else 'GPU-h/step'}")  # fmt: skip
    for one in table.head(top).to_dict("records"):
        at_least, size = ">= " if one["is_lower_bound"] else "", _known(one["peak_bytes"])
        memory = "unknown" if size is None else f"{size / GIB:.3g} GiB" + (" too large" if one["fits"] is False else "")
        yield (f"{'*' if one['on_front'] else ' '}   {one['devices']:7,d}  {one['tensor']:6d}  "
               f"x {one['batch_factor']:<4g}  {at_least + milliseconds(one['step_us']):10s}  {one['speed']:5.2f}x  "
               f"{rounded(_known(one['samples_per_s']), ',.0f'):>9s}  {one['network_share']:7.1%}  {memory:10s}  "
               f"{rounded(_known(one[cost]), '.4g')}")  # fmt: skip
    yield "*   no other setting is better in time of a sample, memory and device time at once"
    yield "speed: samples per second over those of the recorded number of devices; network: of the critical path"
    yield "memory: with the recorded number of replicas; unknown where tensor-parallel ranks divide layers"
    yield from (f"not predicted: {name}: {why}" for name, why in result.refused.items())
    yield from ("taken for granted or not known:" for _ in result.unknown[:1])
    yield from (f"  {sentence}" for sentence in result.unknown[:MOST_SENTENCES])


def _known(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else value


def document(result: TraceSearch) -> dict[str, object]:
    """Everything, for JSON."""
    step, rows = result.recorded, result.table.astype(object).where(result.table.notna(), None).to_dict("records")
    return {
        "name": step.prediction.graph.name, "hardware": step.hardware, "cluster": step.cluster,
        "recorded_step_us": step.step_time_us, "settings": rows, "refused": dict(result.refused),
        "unknown": list(result.unknown),
    }  # fmt: skip
