"""Tables that every rendering of a prediction shares, made of nodes.parquet: by op, type, phase, family, rank."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from gnnperf.core import PREDICTION_COLUMNS, WORK_TYPES, NodeType, OpFamily, Phase, Relation, Segment, Source
from gnnperf.graph import ExecutionGraph, coded, combined, op_names
from gnnperf.predict import StepPrediction

# What is drawn where: slices of one rank's lanes, predicted or measured.
#
# stream 7   |---- gemm ----|- wait -|--- all_reduce ---|
#                           ^ arrive  ^ start of the collective, one slice on every rank that joins it

SLICE_COLUMNS = ("node_id", "rank", "lane", "name", "start_us", "end_us")
UNNAMED = "(unnamed)"


def predicted_slices(estimate: StepPrediction) -> pd.DataFrame:
    """[num_slices] table with SLICE_COLUMNS, from the schedule."""
    return _slices(estimate.prediction.graph, estimate.schedule.start_us, estimate.schedule.end_us)


def measured_slices(estimate: StepPrediction) -> pd.DataFrame:
    """[num_slices] table with SLICE_COLUMNS, from the labels of the step the nodes came from; its start is 0.

    A blocking call is drawn as long as it took. Its own time, which starts where its wait ends, is its latency; a wait
    for peers that were not traced has none.
    """
    nodes = estimate.prediction.graph.nodes
    start_us = nodes["start_us"].to_numpy() - step_start_us(estimate)
    latency_us, wait_us = nodes["latency_us"].to_numpy(), nodes["blocked_us"].fillna(0.0).to_numpy()
    known = ~np.isnan(latency_us)
    begin_us, end_us = start_us - np.where(known, wait_us, 0.0), start_us + np.where(known, latency_us, wait_us)
    return _slices(estimate.prediction.graph, begin_us, end_us)


def step_start_us(estimate: StepPrediction) -> float:
    """Start of the structure step on the trace's clock; its first event where the labels are of another step."""
    steps = [s for s in estimate.prediction.graph.steps if s.step == estimate.structure_step]
    if steps and steps[0].rank_start_us:
        return min(steps[0].rank_start_us)
    first = estimate.prediction.graph.nodes["start_us"].min()
    return 0.0 if np.isnan(first) else float(first)


def _slices(graph: ExecutionGraph, start_us: np.ndarray, end_us: np.ndarray) -> pd.DataFrame:
    """Slices in order of rank, lane and time; what has no start or end has none.

    Host segments, kernels and copies; exits that take time; per rank of a collective the wait from its arrival on,
    then the transfer.
    """
    nodes = graph.nodes
    kind, known = nodes["node_type"], ~(np.isnan(start_us) | np.isnan(end_us))  # [num_nodes]
    work = kind.isin([str(t) for t in (NodeType.HOST, NodeType.COMPUTE, NodeType.MEMORY)]).to_numpy()
    exits = ((kind == NodeType.COMM) & (nodes["segment"] == Segment.EXIT)).to_numpy() & (end_us > start_us)
    own = np.flatnonzero((work | exits) & known)
    joins = graph.edges[(graph.edges["relation"] == Relation.JOINS).to_numpy()]
    joins = joins[known[joins["dst"].to_numpy()]]
    arrive, transfer = joins["src"].to_numpy(), joins["dst"].to_numpy()
    waits = start_us[arrive] < start_us[transfer]
    on = np.concatenate([own, arrive, arrive[waits]])  # [num_slices] the node on whose lane a slice is
    names, lanes, rank = _names(nodes), _lanes(nodes), nodes["rank"].to_numpy()[on]
    name_code = names.codes[on].astype(np.int64)
    name_code[len(own) + len(arrive) :] += len(names.categories)
    named = [*names.categories, *(f"wait for peers: {name}" for name in names.categories)]
    begin = np.concatenate([start_us[own], start_us[transfer], start_us[arrive[waits]]])
    end = np.concatenate([end_us[own], end_us[transfer], start_us[transfer[waits]]])
    order = np.lexsort((end, begin, lanes.codes[on], rank))
    return pd.DataFrame({
        "node_id": np.concatenate([own, transfer, arrive[waits]])[order],
        "rank": rank[order],
        "lane": lanes[on[order]],
        "name": pd.Categorical.from_codes(name_code[order], pd.Index(named)),
        "start_us": begin[order],
        "end_us": end[order],
    })  # fmt: skip


def _lanes(nodes: pd.DataFrame) -> "pd.Categorical[str]":
    """[num_nodes] the host thread or device stream a node runs on, in the order of the alphabet."""
    thread, stream = nodes["thread"].to_numpy(np.int64), nodes["stream"].to_numpy(np.int64)
    code, distinct = pd.factorize(np.where(thread >= 0, 2 * thread, np.where(stream >= 0, 2 * stream + 1, -1)))
    named = [("stream " if lane % 2 else "thread ") + str(lane // 2) if lane >= 0 else "no lane" for lane in distinct]
    return pd.Categorical.from_codes(code, pd.Index(named)).set_categories(sorted(named))


def _names(nodes: pd.DataFrame) -> pd.Categorical:
    """[num_nodes] text on a slice: the op, with its segment on the host; a launch call by its own name."""
    columns = [nodes[name] for name in ("op_name", "event_name", "segment")]
    key: np.ndarray = (nodes["node_type"] == NodeType.HOST).to_numpy(np.int64)
    for column in columns:
        key = key * (len(column.cat.categories) + 1) + column.cat.codes.to_numpy(np.int64) + 1
    code = pd.factorize(key)[0]
    first = np.unique(code, return_index=True)[1]
    rows = nodes.iloc[first][["op_name", "event_name", "segment", "node_type"]].astype(object)
    texts = [_name(*row) for row in rows.where(rows.notna(), None).itertuples(index=False)]
    of_distinct, named = pd.factorize(np.array(texts, dtype=object))
    return pd.Categorical.from_codes(of_distinct[code], pd.Index(named))


def _name(op: str | None, event: str | None, segment: str | None, kind: str) -> str:
    if kind != NodeType.HOST or segment is None:
        return op or event or UNNAMED
    return event if segment == Segment.T4 and event else f"{op or event or UNNAMED} [{segment}]"


# nodes.parquet: one row per node, with what was predicted, measured and by whom. The report is made of it.


def nodes_table(estimate: StepPrediction) -> pd.DataFrame:
    """[num_nodes] table with schema.PREDICTION_COLUMNS, texts as in nodes.parquet.

    `measured_latency_us` is the trace's own value, on the trace's hardware, whatever was predicted for.
    """
    return as_text(coded_nodes(estimate))


def as_text(table: pd.DataFrame) -> pd.DataFrame:
    """The table with category columns as text, each word made once; unknown stays unknown."""
    return table.assign(**{str(name): _text(column) for name, column in table.items()
                           if isinstance(column.dtype, pd.CategoricalDtype)})  # fmt: skip


def coded_nodes(estimate: StepPrediction) -> pd.DataFrame:
    """The `nodes_table` with texts as categories: sums over groups of many nodes compare numbers, no words."""
    prediction, nodes = estimate.prediction, estimate.prediction.graph.nodes
    bound = np.full(len(nodes), None, dtype=object) if estimate.bound is None else estimate.bound
    edges, transfer = prediction.graph.edges, np.full(len(nodes), -1, dtype=np.int64)  # joined, or releasing an exit
    src, dst, relation = edges["src"].to_numpy(), edges["dst"].to_numpy(), edges["relation"]
    joins, releases = (relation == Relation.JOINS).to_numpy(), (relation == Relation.RELEASES).to_numpy()
    exits = releases & (nodes["segment"] == Segment.EXIT).to_numpy()[dst]
    transfer[src[joins]], transfer[dst[exits]] = dst[joins], src[exits]
    columns = {
        **{c.name: nodes[c.name] for c in PREDICTION_COLUMNS if c.name in nodes},
        "op_name": op_names(nodes),
        "flops": nodes["flops"].astype("float64"),
        "bytes": nodes["bytes"].astype("float64"),
        "transfer": transfer,
        "start_us": estimate.schedule.start_us,
        "latency_us": prediction.latency_us,
        "mean_latency_us": prediction.scheduled_us,
        "latency_low_us": prediction.latency_low_us,
        "latency_high_us": prediction.latency_high_us,
        "measured_start_us": nodes["start_us"] - step_start_us(estimate),
        "measured_latency_us": nodes["latency_us"],
        "measured_wait_us": nodes["blocked_us"],
        "analytic_latency_us": prediction.analytic_latency_us,
        "bound": coded(bound),
        "source": prediction.coded["source"],
        "reason": prediction.coded["reason"],
        "on_critical_path": np.asarray(estimate.schedule.on_critical_path, dtype=bool),
        "critical_us": np.asarray(estimate.critical_us, dtype=np.float64),
    }
    return pd.DataFrame({c.name: columns[c.name] for c in PREDICTION_COLUMNS}, copy=False)


def _text(column: pd.Series) -> pd.Series:
    """A category column as text, each word once; unknown stays unknown."""
    words = pd.array([*map(str, column.cat.categories), None], dtype="str")  # the last one is that of code -1
    return pd.Series(words.take(column.cat.codes.to_numpy(np.int64)), index=column.index)


def arrow_texts(column: pd.Series, text: Callable[[Any], str] = str) -> pa.DictionaryArray:
    """[n] a category column as words, each made once, and indices; null where a value is unknown."""
    codes, words = column.cat.codes.to_numpy(np.int32), [text(word) for word in column.cat.categories]
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(words, pa.string()))


FAMILY_OF = {NodeType.HOST: "host, all families", NodeType.COMM: "arrival and exit"}  # of these a family states little
KEYS = ("node_type", "op_name", "event_name", "phase", "family", "dtype", "input_dims", "bound", "source")
CALL = ["op_name", "node_type", "shapes", "dtype", "message_bytes", "bound", "source"]  # what is one row of top ops
PEER_WAIT = "wait for untraced ranks"  # in place of the op's name
HAVE_SHAPES = (NodeType.COMPUTE, NodeType.MEMORY)


def work_table(nodes: pd.DataFrame) -> pd.DataFrame:
    """The rows of `nodes_table` that are work, with an op name, a family and a shape to group by, as categories.

    `predicted_us` and `measured_us` are latencies; `shapes` is None where it does not decide how long a node takes.
    """
    is_work = _is_one_of(nodes, WORK_TYPES)
    count = int(is_work.sum())  # hardware comes last: the rest needs no copy
    work = nodes.iloc[:count] if is_work[:count].all() else nodes[is_work].reset_index(drop=True)
    work = work.astype(dict.fromkeys(KEYS, "category"))
    shaped, family = _is_one_of(work, HAVE_SHAPES), _with_words(work["family"], [*FAMILY_OF.values()])
    for kind, name in FAMILY_OF.items():
        family = family.mask(_is_one_of(work, [kind]), name)
    names = _with_words(work["op_name"], [*work["event_name"].cat.categories, UNNAMED, PEER_WAIT])
    waits = _peer_waits(work)
    return work.assign(
        op_name=names.fillna(work["event_name"].cat.set_categories(names.cat.categories))
        .fillna(UNNAMED)
        .mask(waits, PEER_WAIT),
        family=family,
        shapes=work["input_dims"].where(shaped),
        dtype=work["dtype"].where(shaped),
        message_bytes=work["message_bytes"].where(_is_one_of(work, [NodeType.COLLECTIVE])),
        predicted_us=work["latency_us"],
        measured_us=work["measured_latency_us"].mask(waits, work["measured_wait_us"]),
        num_uncovered=work["latency_us"].isna().astype(np.int64),
    )


def _with_words(column: pd.Series, words: Sequence[str]) -> pd.Series:
    """A category column that may hold these words, too."""
    return column.cat.set_categories(pd.Index([*dict.fromkeys([*column.cat.categories, *words])], dtype="str"))


def _peer_waits(nodes: pd.DataFrame) -> np.ndarray:
    return (nodes["segment"] == Segment.PEER_WAIT).to_numpy()


def _is_one_of(nodes: pd.DataFrame, kinds: Sequence[NodeType]) -> np.ndarray:
    """[num_nodes] bool, each type looked at once."""
    code, distinct = pd.factorize(nodes["node_type"])
    return np.isin(np.asarray(distinct, dtype=str), list(kinds))[code]


def top_ops(estimate: StepPrediction, num_ops: int = 10) -> pd.DataFrame:
    """Ops by their time on the critical path, then by their summed latency over ranks."""
    return leading(totals(work_table(coded_nodes(estimate)), ["op_name", "node_type"]), num_ops)


def top_calls(work: pd.DataFrame, num_calls: int) -> pd.DataFrame:
    """Ops with their shapes, likewise; each_us, low_us, high_us and each_measured_us are medians over their nodes."""
    return _with_medians(work, leading(totals(work, CALL), num_calls))


def longest_calls(work: pd.DataFrame, num_calls: int) -> pd.DataFrame:
    """The same for work on devices and links, most predicted time over all ranks first."""
    there = work[work["node_type"].isin([str(t) for t in WORK_TYPES if t not in FAMILY_OF])]
    return _with_medians(there, _longest(totals(there, CALL)).head(num_calls))


def kernels(work: pd.DataFrame) -> pd.DataFrame:
    """Totals per kernel, copy or memset by its own name, most predicted time first; plans have no such names."""
    there = work[work["node_type"].isin([str(t) for t in HAVE_SHAPES]) & work["event_name"].notna()]
    return _longest(totals(there.rename(columns={"event_name": "kernel"}), ["kernel"]))


def collectives(work: pd.DataFrame) -> pd.DataFrame:
    """Totals per collective op and message size, most predicted time first."""
    return _longest(totals(work[work["node_type"] == NodeType.COLLECTIVE], ["op_name", "message_bytes"]))


def _longest(groups: pd.DataFrame, *first: str) -> pd.DataFrame:
    return groups.sort_values([*first, "predicted_us"], ascending=False, kind="stable").reset_index(drop=True)


def _with_medians(work: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    keys = calls[CALL].astype({name: work[name].dtype for name in CALL})
    values = ["predicted_us", "latency_low_us", "latency_high_us", "measured_us"]
    chosen = work[CALL + values].merge(keys.assign(call=np.arange(len(calls))), on=CALL)
    medians = chosen.groupby("call")[values].median()
    names = ("each_us", "low_us", "high_us", "each_measured_us")
    return calls.join(medians.set_axis(names, axis=1))


def leading(groups: pd.DataFrame, num_groups: int) -> pd.DataFrame:
    """The groups with most time on the critical path; between equals, most predicted."""
    return _longest(groups.sort_values("op_name", kind="stable"), "critical_us").head(num_groups)


def by_node_type(work: pd.DataFrame) -> pd.DataFrame:
    """Totals per node type that occurs, in the vocabulary's order; waits for untraced ranks apart, last."""
    kinds = _with_words(work["node_type"], [Segment.PEER_WAIT]).mask(_peer_waits(work), str(Segment.PEER_WAIT))
    return _in_order(totals(work.assign(node_type=kinds), ["node_type"]), "node_type", [str(t) for t in WORK_TYPES])


def by_phase(work: pd.DataFrame) -> pd.DataFrame:
    """Totals per phase that occurs, in the order of a step."""
    named = work.assign(phase=_with_words(work["phase"], [UNNAMED]).fillna(UNNAMED))
    return _in_order(totals(named, ["phase"]), "phase", list(map(str, Phase)))


def by_family(work: pd.DataFrame) -> pd.DataFrame:
    """Totals per op family, the longest on the critical path first; host work is one family."""
    unknown = str(OpFamily.UNKNOWN)
    named = work.assign(family=_with_words(work["family"], [unknown]).fillna(unknown))
    return _longest(totals(named, ["family"]), "critical_us")


def by_rank(work: pd.DataFrame) -> pd.DataFrame:
    """Totals per rank; transfers, which belong to several ranks, come last as rank -1."""
    result = totals(work, ["rank"])
    return result.iloc[np.lexsort((result["rank"], result["rank"] < 0))].reset_index(drop=True)


def num_nodes_by_source(estimate: StepPrediction) -> dict[str, int]:
    """Number of work nodes per source, best source first; sources that do not occur are left out."""
    is_work = estimate.prediction.graph.nodes["node_type"].isin(list(WORK_TYPES)).to_numpy()
    counts = estimate.prediction.coded["source"][is_work].value_counts()
    return {str(s): int(counts[str(s)]) for s in Source if counts.get(str(s), 0)}


def num_nodes_by_reason(estimate: StepPrediction) -> dict[str, dict[str, int]]:
    """Source -> why -> number of work nodes, most frequent first."""
    work = estimate.prediction.graph.nodes["node_type"].isin(list(WORK_TYPES)).to_numpy()  # [num_nodes]
    groups = estimate.prediction.coded[work].groupby(["source", "reason"], observed=True)
    counts = groups.size().reset_index(name="count").astype({"reason": "str"})
    counts = counts.sort_values(["count", "reason"], ascending=[False, True])
    return {str(s): dict(zip(rows["reason"], map(int, rows["count"]), strict=True))
            for s in Source if len(rows := counts[counts["source"] == str(s)])}  # fmt: skip


def totals(work: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Node count and summed times per group in order of occurrence; a sum of unknown values is NaN, not 0."""
    number = pd.factorize(combined([pd.factorize(work[name])[0] for name in keys]))[0]  # [num_rows] of each row's group
    groups = work[["num_uncovered", "predicted_us", "measured_us", "critical_us"]].groupby(number)
    latency_us = groups[["predicted_us", "measured_us"]].sum(min_count=1)
    sums = groups[["num_uncovered", "critical_us"]].sum()
    table = {"num_nodes": groups.size(), "num_uncovered": sums["num_uncovered"],
             **latency_us, "critical_us": sums["critical_us"]}  # fmt: skip
    first = work[keys].iloc[np.flatnonzero(np.diff(np.maximum.accumulate(number), prepend=-1))]
    return pd.concat([as_text(first).reset_index(drop=True), pd.DataFrame(table)], axis=1)


def _in_order(result: pd.DataFrame, key: str, words: Sequence[str]) -> pd.DataFrame:
    place = {word: number for number, word in enumerate(words)}
    order = result[key].map(lambda word: place.get(str(word), len(place)))
    return result.iloc[np.argsort(order.to_numpy(), kind="stable")].reset_index(drop=True)


def family_errors(work: pd.DataFrame) -> pd.DataFrame:
    """One row per family of work of which a node was both predicted and measured, most measured time first.

    Returns:
        Columns family, num_nodes, measured_us and predicted_us (sums over these nodes), sum_error (of the sums,
        signed), median_error and p90_error (of single nodes, absolute). Nodes measured as 0 us have no relative error
        and are left out.
    """
    work = work[(work["measured_us"] > 0) & work["predicted_us"].notna()]
    off = (work["predicted_us"] / work["measured_us"] - 1.0).abs()
    table = as_text(work[["family", "measured_us", "predicted_us"]]).assign(off=off)
    groups = table.groupby("family", sort=False, dropna=False)
    result = groups[["measured_us", "predicted_us"]].sum()
    result["num_nodes"] = groups.size()
    result["sum_error"] = result["predicted_us"] / result["measured_us"] - 1.0
    result["median_error"] = groups["off"].median()
    result["p90_error"] = groups["off"].quantile(0.9) if len(work) else np.nan
    return result.sort_values("measured_us", ascending=False, kind="stable").reset_index()
