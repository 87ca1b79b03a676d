"""prediction.json: the prediction as one strict JSON document (unknown is null)."""

from dataclasses import asdict
from typing import Any

from gnnperf.hardware import DeviceSpec
from gnnperf.predict import RankMemory, StepPrediction
from gnnperf.report.summary import num_nodes_by_reason, num_nodes_by_source
from gnnperf.report.throughput import throughput_document
from gnnperf.whatif import Finding

FORMAT = "gnnperf.prediction"
FORMAT_VERSION = 1
FREE_FORM = ("source", "host", "provenance")  # keys of a DeviceSpec


def document(estimate: StepPrediction) -> dict[str, Any]:
    """Every key of prediction.json; units are in the names, shares and errors are fractions."""
    graph, measured = estimate.prediction.graph, estimate.measurements
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "run": graph.name,
        "mode": str(estimate.mode),
        **_hardware(estimate),
        "traced_hardware": estimate.traced_hardware or None,
        "hardware_numbers": _numbers(estimate.device),
        "traced_hardware_numbers": _numbers(estimate.traced_device),
        "world_size": graph.world_size,
        "traced_ranks": list(graph.ranks),
        "step": estimate.label.step,
        "step_name": estimate.label.name,
        "structure_step": estimate.structure_step,
        "step_time_kind": str(estimate.step_time_kind),
        "step_time_interval_us": estimate.step_time_interval_us and list(estimate.step_time_interval_us),
        "interval_level": estimate.interval_level,
        "measured_step_time_us": estimate.measured_step_time_us,
        "step_time_error": estimate.step_time_error,
        "traced_step_time_us": estimate.traced_step_time_us,
        "traced_step_prediction_us": estimate.traced_prediction_us,
        "without_profiler": None if estimate.without_profiler is None else asdict(estimate.without_profiler),
        **_ratio(estimate),
        "placement": estimate.placement or None,
        "hardware_table": [
            {**_hardware(one), "placement": one.placement, **_ratio(one)} for one in estimate.alternatives
        ] or None,
        "measured_steps": None if measured is None else [
            {"step": step, "time_us": us, "is_outlier": step in measured.outliers, "shapes": measured.shapes[step]}
            for step, us in measured.steps_us.items()
        ],
        "measured_rank_start_skew_us": estimate.rank_start_skew_us,
        "step_makespan_us": estimate.schedule.makespan_us,
        "rank_step_time_us": {str(rank): time_us for rank, time_us in estimate.rank_step_time_us.items()},
        "num_nodes": graph.num_nodes_by_type(),
        "num_nodes_by_source": num_nodes_by_source(estimate),
        "num_nodes_by_reason": num_nodes_by_reason(estimate),
        "source_share": estimate.source_share,
        "critical_path_share": estimate.critical_path_share,
        "critical_path_delay_us": estimate.critical_delay_us,
        "uncovered_ops": estimate.uncovered_ops,
        "uncovered_measured_share": estimate.uncovered_measured_share,
        "peak_memory": [_memory(rank) for rank in estimate.peak_memory] or None,
        "findings": None if estimate.findings is None else [_finding(one) for one in estimate.findings],
        "whatif": _whatif(estimate),
        "warnings": list(estimate.warnings),
        "notes": list(estimate.notes),
        "provenance": estimate.provenance,
    }  # fmt: skip


def _numbers(device: DeviceSpec | None) -> dict[str, Any] | None:
    """Peak rates, bandwidths and sizes, under the keys of a device's YAML file; null: not known.

    What a file states in words, and a calibration about the machine and its software, stays there.
    """
    if device is None:
        return None
    given = {key: value for key, value in asdict(device).items() if key not in FREE_FORM and value is not None}
    return {**given, "aliases": list(device.aliases)}


def _ratio(one: StepPrediction) -> dict[str, Any]:
    """To the step predicted the same way for the traced hardware."""
    interval = one.ratio_interval and list(one.ratio_interval)
    return {"step_time_ratio": one.step_time_ratio, "step_time_ratio_interval": interval}


def _hardware(one: StepPrediction) -> dict[str, Any]:
    """The step time and what it is predicted for."""
    return {
        "hardware": one.hardware,
        "cluster": one.cluster,
        "step_time_us": one.step_time_us,
        "step_time_is_lower_bound": one.is_lower_bound,
        "throughput": throughput_document(one.throughput),
    }


def _memory(rank: RankMemory) -> dict[str, Any]:
    """One rank's peak; `peak_bytes` is the sum of the parts and of DDP's buckets."""
    peak, measured, line = rank.peak, rank.measured, rank.peak.timeline
    return {
        "rank": peak.rank,
        "step_name": peak.step,
        "peak_bytes": peak.peak_bytes,
        "most_reserved_bytes": peak.most_reserved_bytes,
        "parts_bytes": {str(part): num_bytes for part, num_bytes in peak.parts_bytes.items()},
        "ddp_buckets_bytes": peak.buckets_bytes,
        "held_between_steps_bytes": peak.held_between_steps_bytes,
        "at": peak.at or None,
        "timeline": None if line is None or not line.time_us else {
            "time_us": list(line.time_us), "parts_bytes": {str(p): list(n) for p, n in line.parts_bytes.items()},
        },
        "unknown": list(peak.unknown),
        "missing": list(peak.missing),
        "measured_method": None if measured is None else measured.method,
        "measured_peak_bytes": None if measured is None else measured.peak_bytes,
        "counted_by_that_method_bytes": None if measured is None else measured.counted_bytes(peak),
        "error": rank.error,
        "device_bytes": rank.device_bytes,
        "fits": rank.fits,
    }  # fmt: skip


def _finding(result: Finding) -> dict[str, Any]:
    """One thing that holds the step up; `gain_us` is what the edit takes off the step of that basis."""
    given = asdict(result)
    at_most = given.pop("at_most")
    lists = {name: list(given[name]) for name in ("evidence", "unknown")}
    return {**given, **lists, "basis": str(result.basis), "edit": result.edit or None, "gain_is_upper_bound": at_most}


def _whatif(estimate: StepPrediction) -> dict[str, Any] | None:
    """What the edits make of the step; null without edits. All other keys of the document are the unedited step."""
    whatif, difference_us = estimate.whatif, estimate.whatif_difference_us
    if whatif is None or difference_us is None:
        return None
    return {
        **_hardware(whatif.prediction),
        "edits": list(whatif.edits),
        "step_time_ratio_interval": whatif.ratio_interval and list(whatif.ratio_interval),
        "step_time_quantiles_us": {str(share): us for share, us in whatif.quantiles_us.items()} or None,
        "difference_us": difference_us,
        "difference_share": difference_us / estimate.step_time_us if estimate.step_time_us else None,
        "num_touched_nodes": whatif.num_touched,
        "rank_step_time_us": {str(rank): us for rank, us in whatif.prediction.rank_step_time_us.items()},
        "source_share": whatif.prediction.source_share,
        "critical_path_share": whatif.prediction.critical_path_share,
        "uncovered_ops": whatif.prediction.uncovered_ops,
        "peak_memory": [_memory(rank) for rank in whatif.prediction.peak_memory] or None,
        "found": list(whatif.result),
        "unknown": list(whatif.unknown),
    }
