"""What is not covered, what to measure so that it is, and when that is too much to predict the step."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from gnnperf.analytic import UNRECORDED_DTYPE
from gnnperf.core import WORK_TYPES, InputError, NodeType, counted, require
from gnnperf.graph import uncovered
from gnnperf.predict.measured import tensor_shapes
from gnnperf.predict.request import FallbackConfig
from gnnperf.predict.similar import CALL, LEAST_ROWS, call_numbers, choose, distinct_calls, families
from gnnperf.predict.step_prediction import StepPrediction

ORDER = [False, True, True]  # longest first, then by name
NUM_SHOWN = 5  # ops named in the refusal; ops_to_measure has all


class NotCovered(InputError):
    """Too much of a step has no prediction: the input is valid, so that scripts can tell it from a mistake."""

    exit_code = 3


def check_covered(estimate: StepPrediction, config: FallbackConfig) -> None:
    """Refuse a prediction with too little in it.

    Raises:
        NotCovered: naming the ops, and the measurement that would cover them.
    """
    share = uncovered_share(estimate)
    if share <= config.max_uncovered_share:
        return
    names = ", ".join(f"{name} ({count})" for name, count in list(estimate.uncovered_ops.items())[:NUM_SHOWN])
    lines = list(ops_to_measure(estimate))
    remedy = MEASURE + "\n" + "\n".join(lines) if lines else NO_SHAPES
    raise NotCovered(
        f"{share:.1%} of the step is not covered: {names}",
        where="fallback.max_uncovered_share", allowed=f"at most {config.max_uncovered_share:.1%}", remedy=remedy,
    )  # fmt: skip


MEASURE = (
    "write these lines to ops.jsonl, run `gnnperf calibrate --out mine --ops ops.jsonl` on the device, and pass "
    "measured=mine/ops.parquet:"
)
NO_SHAPES = (
    "the trace has no shapes of these ops, so they cannot be measured apart: record with record_shapes=True, or raise "
    "fallback.max_uncovered_share"
)


def uncovered_share(estimate: StepPrediction) -> float:
    """Share of the measured node time without a latency; of a step that never ran, of its nodes."""
    if estimate.uncovered_measured_share is not None:
        return estimate.uncovered_measured_share
    nodes = estimate.prediction.graph.nodes
    missing = uncovered(estimate.prediction.graph, estimate.prediction.latency_us)
    return float(missing.sum() / max(int(nodes["node_type"].isin(list(WORK_TYPES)).sum()), 1))


def ops_to_measure(estimate: StepPrediction) -> Iterator[str]:
    """Lines of a list for `gnnperf calibrate --ops` that would cover what is not, the longest calls first.

    Collectives and copies are not ops of such a list; ops without recorded shapes cannot be measured apart.
    """
    graph = estimate.prediction.graph
    missing = graph.nodes[uncovered(graph, estimate.prediction.latency_us)]
    calls = missing[(missing["node_type"] == NodeType.COMPUTE) & missing["op_name"].notna()]
    calls = calls[calls["input_dims"].notna()].astype({"op_name": object, "input_dims": object, "dtype": object})
    by_call = calls.groupby(["op_name", "input_dims", "dtype"], dropna=False)["latency_us"].sum().reset_index()
    for call in by_call.sort_values(["latency_us", "op_name", "input_dims"], ascending=ORDER).to_dict("records"):
        if tensor_shapes(str(call["input_dims"])):
            yield _line(*(call[name] for name in CALL))


def coverage_document(estimate: StepPrediction) -> dict[str, Any]:
    """Shares by source, uncovered ops and the calls that would cover them; null: nothing was measured."""
    prediction = estimate.prediction
    nodes = prediction.graph.nodes.assign(source=[str(source) for source in prediction.source])
    nodes = nodes[~nodes["node_type"].isin(["device", "link"])]
    measured_us = nodes["latency_us"].sum()
    sources = {
        str(source): {
            "num_nodes": len(rows),
            "measured_share": float(rows["latency_us"].sum() / measured_us) if measured_us > 0 else None,
            "step_share": estimate.source_share.get(str(source), 0.0),
        }
        for source, rows in nodes.groupby("source", sort=False)
    }
    calls = [json.loads(line) for line in ops_to_measure(estimate)]
    return {"sources": sources, "uncovered_share": uncovered_share(estimate), "uncovered_ops": estimate.uncovered_ops,
            "calls_to_measure": calls}  # fmt: skip


def coverage_lines(estimate: StepPrediction) -> Iterator[str]:
    """What is printed: a line per source, then the ops that nothing covers."""
    result = coverage_document(estimate)
    for source, one in result["sources"].items():
        of_measured = "unknown" if one["measured_share"] is None else f"{one['measured_share']:.1%}"
        yield (f"{source}: {counted(one['num_nodes'], 'node')}, {of_measured} of the measured node time, "
               f"{one['step_share']:.1%} of the predicted step time")  # fmt: skip
    if not estimate.uncovered_ops:
        yield "every op is covered"
        return
    yield f"not covered: {result['uncovered_share']:.1%} of the step"
    for name, count in estimate.uncovered_ops.items():
        yield f"  {name}: {counted(count, 'node')}"
    yield (
        f"{len(result['calls_to_measure'])} distinct calls have shapes: gnnperf coverage TRACE --ops ops.jsonl lists "
        "them, gnnperf calibrate --out mine --ops ops.jsonl measures them, measured=mine/ops.parquet uses them"
    )


# Which few calls of a step to measure, so that they correct most of the rest (gnnperf.predict.similar): each family and
# dtype has its share of the predicted device time, LEAST_ROWS at least; k-means within it. Labels play no part.


def calls_to_measure(estimate: StepPrediction, count: int) -> Iterator[str]:
    """Lines of a list for `gnnperf calibrate --ops`, at most `count`; the family that takes longest first."""
    require(count >= LEAST_ROWS, "--choose", count, f"a whole number >= {LEAST_ROWS}")
    nodes, base_us = estimate.prediction.graph.nodes, estimate.prediction.latency_us
    result = sorted(families(nodes, base_us), key=lambda places: -float(base_us[places].sum()))
    whole_us, left = sum(float(base_us[places].sum()) for places in result), count
    for places in result:
        own = max(LEAST_ROWS, round(count * float(base_us[places].sum()) / whole_us))
        for place in _chosen(estimate, places, min(own, left)):
            left -= 1
            yield _line(*nodes.iloc[place][CALL])


def _chosen(estimate: StepPrediction, places: np.ndarray, count: int) -> list[int]:
    """Nodes of distinct calls; none where so few would correct nothing."""
    nodes, base_us = estimate.prediction.graph.nodes.iloc[places], estimate.prediction.latency_us[places]
    numbers = call_numbers(nodes, base_us)
    has_shapes = nodes["input_dims"].astype(object).map(lambda dims: bool(tensor_shapes(str(dims))))
    measurable = np.flatnonzero((nodes["num_siblings"] <= 1) & (nodes["opened_ops"] <= 0) & has_shapes)
    distinct = measurable[distinct_calls(nodes.iloc[measurable])[0]]
    if min(count, len(distinct)) < LEAST_ROWS:
        return []
    chosen: list[int] = places[distinct[choose(numbers[distinct], min(count, len(distinct)), seed=0)]].tolist()
    return chosen


def _line(op: str, input_dims: str, dtype: object) -> str:
    shapes = [list(shape) for shape in tensor_shapes(str(input_dims))]
    return json.dumps({"op": op, "shapes": shapes, "dtype": dtype if isinstance(dtype, str) else UNRECORDED_DTYPE})
