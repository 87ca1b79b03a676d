"""What is not covered, what would cover it, and when that is too much to answer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pandas as pd

from gnnperf.analytic import UNRECORDED_DTYPE
from gnnperf.core import WORK_TYPES, InputError, NodeType
from gnnperf.graph import uncovered
from gnnperf.predict.measured import tensor_shapes
from gnnperf.predict.request import FallbackConfig
from gnnperf.predict.step_prediction import StepPrediction

ORDER = [False, True, True]  # longest first, then by name
NUM_SHOWN = 5  # ops named in the refusal; ops_to_measure has all


class NotCovered(InputError):
    """Too much of a step has no answer: nothing is wrong with the input, so that scripts can tell it from a mistake."""

    exit_code = 3


def check_covered(answer: StepPrediction, config: FallbackConfig) -> None:
    """Refuse an answer with too little in it.

    Raises:
        NotCovered: naming the ops, and the measurement that would cover them.
    """
    share = uncovered_share(answer)
    if share <= config.max_uncovered_share:
        return
    names = ", ".join(f"{name} ({count})" for name, count in list(answer.uncovered_ops.items())[:NUM_SHOWN])
    lines = list(ops_to_measure(answer))
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


def uncovered_share(answer: StepPrediction) -> float:
    """Share of the measured node time without a latency; of a step that never ran, of its nodes."""
    if answer.uncovered_measured_share is not None:
        return answer.uncovered_measured_share
    nodes = answer.prediction.graph.nodes
    missing = uncovered(answer.prediction.graph, answer.prediction.latency_us)
    return float(missing.sum() / max(int(nodes["node_type"].isin(list(WORK_TYPES)).sum()), 1))


def ops_to_measure(answer: StepPrediction) -> Iterator[str]:
    """Lines of a list for `gnnperf calibrate --ops` that would cover what is not, the longest calls first.

    Collectives and copies are not ops of such a list; ops without recorded shapes cannot be measured apart.
    """
    graph = answer.prediction.graph
    missing = graph.nodes[uncovered(graph, answer.prediction.latency_us)]
    calls = missing[(missing["node_type"] == NodeType.COMPUTE) & missing["op_name"].notna()]
    calls = calls[calls["input_dims"].notna()].astype({"op_name": object, "input_dims": object, "dtype": object})
    by_call = calls.groupby(["op_name", "input_dims", "dtype"], dropna=False)["latency_us"].sum().reset_index()
    for call in by_call.sort_values(["latency_us", "op_name", "input_dims"], ascending=ORDER).to_dict("records"):
        shapes = [list(shape) for shape in tensor_shapes(str(call["input_dims"]))]
        dtype = UNRECORDED_DTYPE if pd.isna(call["dtype"]) else call["dtype"]
        if shapes:
            yield json.dumps({"op": call["op_name"], "shapes": shapes, "dtype": dtype})
