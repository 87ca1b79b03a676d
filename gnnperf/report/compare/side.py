"""One of the two that are compared: a step time, and the nodes that it is made of."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from gnnperf.core import WORK_TYPES, InputError, Source, StepTimeKind, reading
from gnnperf.graph import ExecutionGraph, Prediction, load_graph
from gnnperf.hardware import match_device
from gnnperf.predict import Mode, Question, StepPrediction, assemble, choose_step, step_time_kind, traced_name
from gnnperf.report.json_document import FORMAT, FORMAT_VERSION
from gnnperf.report.summary import nodes_table
from gnnperf.schedule import measured_latencies, step_us

DOCUMENT, NODES = "prediction.json", "nodes.parquet"
RATES = ("samples_per_s", "samples_per_s_per_gpu", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "hfu",
         "gpu_hours_per_step", "usd_per_million_tokens", "usd_per_million_samples")  # fmt: skip
COLUMNS = ("node_type", "op_name", "phase", "latency_us", "critical_us")
AGAIN = "predict again with this version (gnnperf predict TRACE --out DIR)"


@dataclass(frozen=True)
class Side:
    """A step, predicted or measured."""

    where: str  # what the user named
    run: str  # the run's name
    who: str  # "measured", or the mode that predicted it
    hardware: str  # device ("" unknown)
    step_time_us: float  # of `step_time_kind`
    step_time_kind: StepTimeKind  # period, makespan or window
    is_lower_bound: bool  # some work has no latency and is left out
    # [num_work] table with COLUMNS of the nodes that are work; `critical_us` is the time that the critical path
    # spends at a node
    nodes: pd.DataFrame
    # what the prediction took from measurements of its trace; "" a replay, or written before that was kept
    evidence: str = ""
    # numbers of prediction.json's `throughput` that are compared, by key; {} a measured step, or unknown
    rates: dict[str, float] = field(default_factory=dict)


def predicted_side(result: StepPrediction, nodes: pd.DataFrame) -> Side:
    """A step as predicted; `nodes` is its `nodes_table`."""
    return Side("", result.prediction.graph.name, str(result.mode), result.hardware, result.step_time_us,
                result.step_time_kind, result.is_lower_bound, work(nodes))  # fmt: skip


def is_prediction(path: Path) -> bool:
    """Whether `path` is a folder that holds a prediction, and not a trace."""
    return path.is_dir() and (path / DOCUMENT).is_file()


def read_prediction(folder: Path) -> Side:
    """What predict.py wrote.

    Raises InputError: no prediction of this version of the format is there, or it cannot be read.
    """
    given = read_document(folder / DOCUMENT)
    with reading(folder / DOCUMENT, "cannot be understood", remedy=AGAIN):
        known = given.get("throughput") or {}  # none in a prediction of an earlier version
        return Side(
            where=str(folder),
            run=str(given["run"]),
            who=str(given["mode"]),
            hardware=str(given["hardware"] or ""),
            step_time_us=_time_us(given["step_time_us"]),
            step_time_kind=StepTimeKind(given["step_time_kind"]),
            is_lower_bound=bool(given["step_time_is_lower_bound"]),
            nodes=work(read_nodes(folder / NODES)),
            evidence=str(given["provenance"].get("evidence") or ""),
            rates={key: float(known[key]) for key in RATES if isinstance(known.get(key), int | float)},
        )


def read_step(path: Path) -> tuple[float, StepTimeKind]:
    """Step time (us) and kind of what predict.py wrote: its folder, or prediction.json by itself."""
    file = path / DOCUMENT if path.is_dir() else path
    given = read_document(file)
    with reading(file, "cannot be understood", remedy=AGAIN):
        return _time_us(given["step_time_us"]), StepTimeKind(given["step_time_kind"])


def work(nodes: pd.DataFrame) -> pd.DataFrame:
    """[num_work] COLUMNS of the nodes that take part in a step; hardware does not."""
    is_work = nodes["node_type"].astype(object).isin([str(t) for t in WORK_TYPES])
    return nodes.loc[is_work, list(COLUMNS)].reset_index(drop=True)


def _time_us(value: Any) -> float:
    time_us = float(value)
    if not math.isfinite(time_us) or time_us < 0:
        raise ValueError(f"step_time_us is {value!r}")
    return time_us


def read_document(path: Path) -> dict[str, Any]:
    """A prediction.json."""
    with reading(path, remedy=AGAIN):
        given = msgspec.json.decode(path.read_bytes())
    if not isinstance(given, dict) or given.get("format") != FORMAT or given.get("format_version") != FORMAT_VERSION:
        raise InputError("is no prediction of this version", where=str(path),
                         allowed=f"format {FORMAT}, version {FORMAT_VERSION}", remedy=AGAIN)  # fmt: skip
    return given


def read_nodes(path: Path, columns: tuple[str, ...] = COLUMNS) -> pd.DataFrame:
    """These columns of a nodes.parquet."""
    with reading(path, remedy=AGAIN):
        known = pq.read_schema(path).names
        missing = [name for name in columns if name not in known]
        if missing:
            raise InputError(f"has no column {missing[0]!r}", where=str(path), remedy=AGAIN)
        return pq.read_table(path, columns=list(columns)).to_pandas()


# A trace as one of the two: its step as measured, with the critical path of what was measured.


MEASURED = "measured"


def read_measured(trace: Path, step: int | None = None) -> Side:
    """A measured step of a trace."""
    if not trace.exists():
        raise InputError("no such file or directory", where=str(trace),
                         allowed="a folder that predict.py wrote, or a trace")  # fmt: skip
    return measured_side(load_graph(trace, None), str(trace), step)


def measured_side(graph: ExecutionGraph, where: str, step: int | None = None) -> Side:
    """A measured step of a graph; gaps and latencies that were not measured take the medians of their class."""
    label = choose_step(graph, step)
    one = graph.step(label.step)
    latency_us, lag_us = (np.nan_to_num(values) for values in measured_latencies(one))
    unknown = np.full(one.num_nodes, np.nan)
    source = np.full(one.num_nodes, Source.MEASURED, dtype=object)
    prediction = Prediction(one, latency_us, lag_us, source, unknown, unknown, unknown, {})
    question = Question(label, label.step, Mode.replay, "", "", traced_name(graph), True, {})
    names = [name if (device := match_device(name)) is None else device.name for name in graph.device_names if name]
    return Side(where, graph.name, MEASURED, ", ".join(dict.fromkeys(names)), step_us(label), step_time_kind(label),
                is_lower_bound=False, nodes=work(nodes_table(assemble(prediction, question))))  # fmt: skip
