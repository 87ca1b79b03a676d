"""Tables that every rendering of a prediction shares, made of nodes.parquet: by op, type, phase, family, rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gnnperf.core import PREDICTION_COLUMNS, WORK_TYPES, NodeType, OpFamily, Phase, Relation, Segment, Source
from gnnperf.graph import ExecutionGraph
from gnnperf.predict import StepPrediction

# What is drawn where: slices of one rank's lanes, predicted or measured.
#
# stream 7   |---- gemm ----|- wait -|--- all_reduce ---|
#                           ^ arrive  ^ start of the collective, one slice on every rank that joins it

SLICE_COLUMNS = ("node_id", "rank", "lane", "name", "start_us", "end_us")


def predicted_slices(answer: StepPrediction) -> pd.DataFrame:
    """[num_slices] table with SLICE_COLUMNS, from the schedule."""
    return _slices(answer.prediction.graph, answer.schedule.start_us, answer.schedule.end_us)


def measured_slices(answer: StepPrediction) -> pd.DataFrame:
    """[num_slices] table with SLICE_COLUMNS, from the labels of the step the nodes came from; its start is 0.

    A blocking call is drawn as long as it took. Its own time, which starts where its wait ends, is its latency; a wait
    for peers that were not traced has none.
    """
    nodes = answer.prediction.graph.nodes
    start_us = nodes["start_us"].to_numpy() - step_start_us(answer)
    latency_us, wait_us = nodes["latency_us"].to_numpy(), nodes["blocked_us"].fillna(0.0).to_numpy()
    known = ~np.isnan(latency_us)
    begin_us, end_us = start_us - np.where(known, wait_us, 0.0), start_us + np.where(known, latency_us, wait_us)
    return _slices(answer.prediction.graph, begin_us, end_us)


def step_start_us(answer: StepPrediction) -> float:
    """Start of the structure step on the trace's clock; its first event where the labels are of another step."""
    steps = [s for s in answer.prediction.graph.steps if s.step == answer.structure_step]
    if steps and steps[0].rank_start_us:
        return min(steps[0].rank_start_us)
    first = answer.prediction.graph.nodes["start_us"].min()
    return 0.0 if np.isnan(first) else float(first)


def _slices(graph: ExecutionGraph, start_us: np.ndarray, end_us: np.ndarray) -> pd.DataFrame:
    drawn = pd.concat([_own(graph, start_us, end_us), _joined(graph, start_us, end_us)], ignore_index=True)
    known = drawn["start_us"].notna() & drawn["end_us"].notna()
    return drawn[known].sort_values(["rank", "lane", "start_us", "end_us"], kind="stable").reset_index(drop=True)


def _known(start_us: np.ndarray, end_us: np.ndarray) -> np.ndarray:
    return ~(np.isnan(start_us) | np.isnan(end_us))


def _own(graph: ExecutionGraph, start_us: np.ndarray, end_us: np.ndarray) -> pd.DataFrame:
    """Host segments, kernels and copies; of comm nodes only exits that take time (arrivals are drawn as waits)."""
    nodes = graph.nodes
    kind = nodes["node_type"].astype(str).to_numpy()
    work = np.isin(kind, [NodeType.HOST, NodeType.COMPUTE, NodeType.MEMORY])
    exits = (kind == NodeType.COMM) & (nodes["segment"] == Segment.EXIT).to_numpy() & (end_us > start_us)
    drawn = np.flatnonzero((work | exits) & _known(start_us, end_us))
    return _rows(graph, drawn, start_us[drawn], end_us[drawn])


def _joined(graph: ExecutionGraph, start_us: np.ndarray, end_us: np.ndarray) -> pd.DataFrame:
    """Per rank of a collective: the wait from its arrival on, then the transfer."""
    joins = graph.edges[(graph.edges["relation"] == Relation.JOINS).to_numpy()]
    joins = joins[_known(start_us, end_us)[joins["dst"].to_numpy()]]
    arrive, collective = joins["src"].to_numpy(), joins["dst"].to_numpy()
    transfer = _rows(graph, arrive, start_us[collective], end_us[collective])
    wait = _rows(graph, arrive, start_us[arrive], start_us[collective])
    wait["name"] = "wait for peers: " + wait["name"]
    return pd.concat([transfer.assign(node_id=collective), wait[wait["end_us"] > wait["start_us"]]], ignore_index=True)


def _rows(graph: ExecutionGraph, node_id: np.ndarray, start_us: np.ndarray, end_us: np.ndarray) -> pd.DataFrame:
    """Slices on the lanes of these nodes; all arguments are [num_slices]."""
    nodes = graph.nodes.iloc[node_id]  # a plan has no measured slices: nothing is written out for them
    return pd.DataFrame(
        {
            "node_id": node_id,
            "rank": nodes["rank"].to_numpy(),
            "lane": _lanes(nodes),
            "name": _names(nodes),
            "start_us": start_us,
            "end_us": end_us,
        }
    )


def _lanes(nodes: pd.DataFrame) -> np.ndarray:
    """[num_nodes] text: the host thread or device stream a node runs on."""
    thread = "thread " + nodes["thread"].astype(str)
    stream = "stream " + nodes["stream"].astype(str)
    lane = np.where(nodes["thread"] >= 0, thread, np.where(nodes["stream"] >= 0, stream, "no lane"))
    return lane.astype(object)


def _names(nodes: pd.DataFrame) -> np.ndarray:
    """[num_nodes] text on a slice: the op, with its segment on the host; a launch call by its own name."""
    op = nodes["op_name"].astype(object)
    event = nodes["event_name"].astype(object)
    segment = nodes["segment"].astype(object)
    name = op.fillna(event).fillna("(unnamed)").astype(str)
    on_host = (nodes["node_type"] == NodeType.HOST).to_numpy()
    calls = on_host & (segment == Segment.T4).to_numpy() & event.notna().to_numpy()
    with_segment = name + " [" + segment.fillna("").astype(str) + "]"
    return np.where(calls, event.astype(str), np.where(on_host & segment.notna(), with_segment, name)).astype(object)


# nodes.parquet: one row per node, with what was predicted, measured and by whom. The report is made of it.


def nodes_table(answer: StepPrediction) -> pd.DataFrame:
    """[num_nodes] table with schema.PREDICTION_COLUMNS.

    `measured_latency_us` is the trace's own value, on the trace's hardware, whatever was predicted for.
    """
    columns = {**_identity(answer.prediction.graph.nodes), **_predicted(answer), **_measured(answer)}
    return pd.DataFrame({c.name: columns[c.name] for c in PREDICTION_COLUMNS})


def _identity(nodes: pd.DataFrame) -> dict[str, pd.Series]:
    texts = ("node_type", "op_name", "event_name", "segment", "phase", "family", "dtype", "input_dims")
    numbers = ("node_id", "rank", "message_bytes", "thread", "stream")
    works = {name: nodes[name].astype("float64") for name in ("flops", "bytes")}
    return {**{name: _text(nodes[name]) for name in texts}, **{name: nodes[name] for name in numbers}, **works}


def _predicted(answer: StepPrediction) -> dict[str, pd.Series | np.ndarray]:
    prediction = answer.prediction
    bound = np.full(prediction.graph.num_nodes, None, dtype=object) if answer.bound is None else answer.bound
    return {
        "transfer": _transfer(answer),
        "start_us": answer.schedule.start_us,
        "latency_us": prediction.latency_us,
        "mean_latency_us": prediction.scheduled_us,
        "latency_low_us": prediction.latency_low_us,
        "latency_high_us": prediction.latency_high_us,
        "analytic_latency_us": prediction.analytic_latency_us,
        "bound": _text(pd.Series(pd.Categorical(bound))),
        "source": pd.Series([str(s) for s in prediction.source], dtype="str"),
        "reason": pd.Series(prediction.reasons.tolist(), dtype="str"),
        "on_critical_path": np.asarray(answer.schedule.on_critical_path, dtype=bool),
        "critical_us": np.asarray(answer.critical_us, dtype=np.float64),
    }


def _measured(answer: StepPrediction) -> dict[str, pd.Series]:
    nodes = answer.prediction.graph.nodes
    return {
        "measured_start_us": nodes["start_us"] - step_start_us(answer),
        "measured_latency_us": nodes["latency_us"],
        "measured_wait_us": nodes["blocked_us"],
    }


def _transfer(answer: StepPrediction) -> np.ndarray:
    """[num_nodes] the transfer that an arrival joins or that releases an exit; -1 elsewhere."""
    graph = answer.prediction.graph
    result = np.full(graph.num_nodes, -1, dtype=np.int64)
    relation = graph.edges["relation"]
    src, dst = graph.edges["src"].to_numpy(), graph.edges["dst"].to_numpy()
    joins, releases = (relation == Relation.JOINS).to_numpy(), (relation == Relation.RELEASES).to_numpy()
    exits = releases & (graph.nodes["segment"] == Segment.EXIT).to_numpy()[dst]
    result[src[joins]] = dst[joins]
    result[dst[exits]] = src[exits]
    return result


def _text(column: pd.Series) -> pd.Series:
    """A category column as text, each word once; unknown stays unknown."""
    words = np.array([*map(str, column.cat.categories), None], dtype=object)  # the last one is that of code -1
    return pd.Series(words[column.cat.codes.to_numpy()], index=column.index).astype("str")


UNNAMED = "(unnamed)"
FAMILY_OF = {NodeType.HOST: "host, all families", NodeType.COMM: "arrival and exit"}  # of these a family says little
CALL = ["op_name", "node_type", "shapes", "dtype", "message_bytes", "bound", "source"]  # what is one row of top ops
HAVE_SHAPES = (NodeType.COMPUTE, NodeType.MEMORY)


def work_table(nodes: pd.DataFrame) -> pd.DataFrame:
    """The rows of `nodes_table` that are work, with an op name, a family and a shape to group by.

    `predicted_us` and `measured_us` are latencies; `shapes` is None where it does not decide how long a node takes.
    """
    is_work = nodes["node_type"].astype(object).isin([str(t) for t in WORK_TYPES])
    work = nodes[is_work].reset_index(drop=True)
    kind = work["node_type"].astype(object)
    shaped = kind.isin([str(t) for t in HAVE_SHAPES])
    return work.assign(
        op_name=work["op_name"].fillna(work["event_name"]).fillna(UNNAMED),
        family=kind.map({str(t): name for t, name in FAMILY_OF.items()}).fillna(work["family"]),
        shapes=work["input_dims"].where(shaped),
        dtype=work["dtype"].where(shaped),
        message_bytes=work["message_bytes"].where(kind == NodeType.COLLECTIVE),
        predicted_us=work["latency_us"],
        measured_us=work["measured_latency_us"],
        num_uncovered=work["latency_us"].isna().astype(np.int64),
    )


def top_ops(answer: StepPrediction, num_ops: int = 10) -> pd.DataFrame:
    """Ops by their time on the critical path, then by their summed latency over ranks."""
    return leading(totals(work_table(nodes_table(answer)), ["op_name", "node_type"]), num_ops)


def top_calls(work: pd.DataFrame, num_calls: int) -> pd.DataFrame:
    """Ops with their shapes, likewise; each_us, low_us, high_us and each_measured_us are medians over their nodes."""
    return _with_medians(work, leading(totals(work, CALL), num_calls))


def longest_calls(work: pd.DataFrame, num_calls: int) -> pd.DataFrame:
    """The same for work on devices and links, most predicted time over all ranks first."""
    there = work[work["node_type"].isin([str(t) for t in WORK_TYPES if t not in FAMILY_OF])]
    result = totals(there, CALL).sort_values("predicted_us", ascending=False, kind="stable")
    return _with_medians(there, result.head(num_calls).reset_index(drop=True))


def _with_medians(work: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    chosen = work.merge(calls[CALL].assign(call=np.arange(len(calls))), on=CALL)
    medians = chosen.groupby("call")[["predicted_us", "latency_low_us", "latency_high_us", "measured_us"]].median()
    names = ("each_us", "low_us", "high_us", "each_measured_us")
    return calls.join(medians.set_axis(names, axis=1))


def leading(groups: pd.DataFrame, num_groups: int) -> pd.DataFrame:
    """The groups with most time on the critical path; between equals, most predicted."""
    keys = ["critical_us", "predicted_us", "op_name"]
    return (
        groups.sort_values(keys, ascending=[False, False, True], kind="stable").head(num_groups).reset_index(drop=True)
    )


def by_node_type(work: pd.DataFrame) -> pd.DataFrame:
    """Totals per node type that occurs, in the vocabulary's order."""
    return _in_order(totals(work, ["node_type"]), "node_type", [str(t) for t in WORK_TYPES])


def by_phase(work: pd.DataFrame) -> pd.DataFrame:
    """Totals per phase that occurs, in the order of a step."""
    return _in_order(
        totals(work.assign(phase=work["phase"].fillna(UNNAMED)), ["phase"]), "phase", list(map(str, Phase))
    )


def by_family(work: pd.DataFrame) -> pd.DataFrame:
    """Totals per op family, the longest on the critical path first; host work is one family."""
    result = totals(work.assign(family=work["family"].fillna(str(OpFamily.UNKNOWN))), ["family"])
    return result.sort_values(["critical_us", "predicted_us"], ascending=False, kind="stable").reset_index(drop=True)


def by_rank(work: pd.DataFrame) -> pd.DataFrame:
    """Totals per rank; transfers, which belong to several ranks, come last as rank -1."""
    result = totals(work, ["rank"])
    return result.iloc[np.lexsort((result["rank"], result["rank"] < 0))].reset_index(drop=True)


def num_nodes_by_source(answer: StepPrediction) -> dict[str, int]:
    """Number of work nodes per source, best source first; sources that do not occur are left out."""
    is_work = answer.prediction.graph.nodes["node_type"].isin(list(WORK_TYPES)).to_numpy()
    counts = pd.Series([str(s) for s in answer.prediction.source[is_work]]).value_counts()
    return {str(s): int(counts[str(s)]) for s in Source if str(s) in counts.index}


def num_nodes_by_reason(answer: StepPrediction) -> dict[str, dict[str, int]]:
    """Source -> why -> number of work nodes, most frequent first."""
    work = answer.prediction.graph.nodes["node_type"].isin(list(WORK_TYPES)).to_numpy()  # [num_nodes]
    source = answer.prediction.source[work].astype(str)
    table = pd.DataFrame({"source": source, "reason": answer.prediction.reasons[work]})
    counts = table.value_counts().reset_index().sort_values(["count", "reason"], ascending=[False, True])
    return {str(s): dict(zip(rows["reason"], map(int, rows["count"]), strict=True))
            for s in Source if len(rows := counts[counts["source"] == str(s)])}  # fmt: skip


def totals(work: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Node count and summed times per group; a sum without a single known value is NaN, not 0."""
    groups = work.groupby(keys, sort=False, observed=True, dropna=False)
    return pd.DataFrame(
        {
            "num_nodes": groups.size(),
            "num_uncovered": groups["num_uncovered"].sum(),
            "predicted_us": groups["predicted_us"].sum(min_count=1),
            "measured_us": groups["measured_us"].sum(min_count=1),
            "critical_us": groups["critical_us"].sum(),
        }
    ).reset_index()


def _in_order(result: pd.DataFrame, key: str, words: Sequence[str]) -> pd.DataFrame:
    place = {word: number for number, word in enumerate(words)}
    return result.sort_values(key, key=lambda column: column.map(lambda w: place.get(str(w), len(place)))).reset_index(
        drop=True
    )


def family_errors(nodes: pd.DataFrame) -> pd.DataFrame:
    """One row per family of which a node was both predicted and measured, most measured time first.

    Returns:
        Columns family, num_nodes, measured_us and predicted_us (sums over these nodes), sum_error (of the sums,
        signed), median_error and p90_error (of single nodes, absolute). Nodes measured as 0 us have no relative error
        and are left out.
    """
    work = work_table(nodes)
    work = work[(work["measured_us"] > 0) & work["predicted_us"].notna()]
    off = (work["predicted_us"] / work["measured_us"] - 1.0).abs()
    groups = work.assign(off=off).groupby("family", sort=False, dropna=False)
    result = groups[["measured_us", "predicted_us"]].sum()
    result["num_nodes"] = groups.size()
    result["sum_error"] = result["predicted_us"] / result["measured_us"] - 1.0
    result["median_error"] = groups["off"].median()
    result["p90_error"] = groups["off"].quantile(0.9) if len(work) else np.nan
    return result.sort_values("measured_us", ascending=False, kind="stable").reset_index()
