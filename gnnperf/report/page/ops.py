"""Tables of ops: the ones that take most of the step, how far families are off, what is not covered."""

import math
from typing import Any

import pandas as pd

from gnnperf.core import NodeType, Phase, Segment, Source
from gnnperf.predict import RankMemory, StepPrediction
from gnnperf.report.page.markup import (
    Markup,
    Td,
    bars,
    count_td,
    note,
    paragraph,
    rank_td,
    rows_of,
    share_td,
    signed_share_td,
    subtitle,
    table,
    text_td,
    time_td,
)
from gnnperf.report.summary import kernels, longest_calls, top_calls
from gnnperf.report.text import UNKNOWN, bytes_text, comparison, fit_lines, memory_lines, shapes_text, time_text

# Which variable of the style sheet colors what; report.css has their values in light and in dark.
#
# The hues are those of Okabe and Ito (2008), which people with any kind of color vision can tell apart, darkened or
# lightened until they stand out from the background by 3:1.

OTHER = "grey"
OF_TYPE = {
    str(NodeType.HOST): "host", str(NodeType.COMPUTE): "compute", str(NodeType.MEMORY): "memory",
    str(NodeType.COMM): "wait", str(NodeType.COLLECTIVE): "transfer", str(Segment.PEER_WAIT): "wait",
}  # fmt: skip
OF_SOURCE = {
    str(Source.MEASURED): "green", str(Source.GNN): "blue", str(Source.GNN_CALIBRATED): "sky",
    str(Source.ANALYTIC): "amber", str(Source.DECLARED): "pink", str(Source.UNCOVERED): "red",
    str(Source.TRACE): "exit", str(Source.SCALED): "wait", str(Source.CLASS_MEDIAN): OTHER,
}  # fmt: skip
OF_PHASE = {str(Phase.FORWARD): "blue", str(Phase.BACKWARD): "amber", str(Phase.OPTIMIZER): "green",
            str(Phase.OTHER): OTHER}  # fmt: skip

NUM_OPS = 30
OP_HEADS = (
    "op", "type", "shapes", "dtype", "nodes", "on critical path", "share of step", "", "latency", "interval of latency",
    "measured latency", "predicted, summed", "bound by", "source",
)  # fmt: skip
COLUMN_OF = {"interval of latency": "low_us", "measured latency": "each_measured_us"}
# What no closed form states: where such nodes' time goes comes from what they are.
BOUND_OF = {NodeType.HOST: "host", NodeType.MEMORY: "link", NodeType.COLLECTIVE: "link", NodeType.COMM: "peers"}
OPS_NOTE = (
    "Ops of one shape, the longest on the critical path first. Latency, interval and measured latency are those of one "
    "node (medians). Bound by: what the analytical model states most of the time goes into."
)


def ops(work: pd.DataFrame, step_time_us: float) -> Markup:
    """What takes most of the step, and what devices spend most on: where a step waits for hosts, these are others."""
    first = _calls("Top ops", top_calls(work, NUM_OPS), step_time_us)
    others = _calls("Ops on devices and links", longest_calls(work, NUM_OPS), step_time_us)
    head = f"{subtitle('On devices and links')}{note('Most predicted time over all ranks first.')}"
    return Markup(f"{note(OPS_NOTE)}{first}{head}{others}{_kernels(kernels(work))}")


def _kernels(result: pd.DataFrame) -> Markup:
    """Kernels by name, with their share of all time of kernels; nothing without names."""
    total_us = result["predicted_us"].sum() or 1.0
    shown = result.head(NUM_OPS)
    heads = ("kernel", "nodes", "predicted, summed", "share of kernels", "", "mean", "measured, summed")
    rows = [(text_td(str(row.kernel)), count_td(row.num_nodes), time_td(row.predicted_us),
             share_td(row.predicted_us / total_us), drawn, time_td(row.predicted_us / row.num_nodes),
             time_td(row.measured_us))
            for row, drawn in zip(rows_of(shown), bars(shown["predicted_us"]), strict=True)]  # fmt: skip
    sentences = note("Kernels and copies by their own names, over all ranks; most predicted time first.")
    return Markup(f"{subtitle('Kernels')}{sentences}{table('Kernels', heads, rows)}" if rows else "")


def _calls(caption: str, calls: pd.DataFrame, step_time_us: float) -> Markup:
    step = step_time_us or 1.0
    colors = [OF_TYPE.get(kind, OTHER) for kind in calls["node_type"]]
    rows = [
        (
            text_td(str(row.op_name)), Td(str(row.node_type)), text_td(_shapes(row)), Td(_known(row.dtype)),
            count_td(row.num_nodes), time_td(row.critical_us), share_td(row.critical_us / step), drawn,
            time_td(row.each_us), Td(_interval(row.low_us, row.high_us)), time_td(row.each_measured_us),
            time_td(row.predicted_us), Td(_known(row.bound) or BOUND_OF.get(NodeType(row.node_type), "unknown")),
            Td(str(row.source)),
        )
        for row, drawn in zip(rows_of(calls), bars(calls["critical_us"], colors), strict=True)
    ]  # fmt: skip
    unknown = [head for head, column in COLUMN_OF.items() if calls[column].isna().all()]
    sentences = note(f"Unknown for all of them: {', '.join(unknown)}.") if unknown else ""
    return Markup(f"{sentences}{table(caption, OP_HEADS, rows, unknown)}")


def _interval(low_us: float, high_us: float) -> str:
    return "none" if math.isnan(low_us) or math.isnan(high_us) else f"{time_text(low_us)} to {time_text(high_us)}"


def _known(word: object) -> str:
    return word if isinstance(word, str) else ""


def _shapes(row: Any) -> str:
    if isinstance(row.shapes, str):
        return shapes_text(row.shapes)
    return "" if math.isnan(row.message_bytes) else f"{bytes_text(int(row.message_bytes))} per rank"


def errors(result: pd.DataFrame, prediction: StepPrediction) -> Markup:
    """`family_errors` as a table; the reason where there is nothing to compare."""
    if prediction.measured_step_time_us is None:
        return paragraph(f"No errors: {comparison(prediction)}.")
    sums = ("measured, summed", "predicted, summed", "error of the sum")
    heads = ("op family", "nodes", *sums, "median error of a node", "90th percentile")
    rows = [
        (text_td(str(row.family)), count_td(row.num_nodes), time_td(row.measured_us), time_td(row.predicted_us),
         signed_share_td(row.sum_error), share_td(row.median_error), share_td(row.p90_error))
        for row in rows_of(result)
    ]  # fmt: skip
    sentences = "Nodes that were both predicted and measured. Errors of single nodes are |predicted / measured - 1|."
    return Markup(f"{note(sentences)}{table('Errors by op family', heads, rows)}")


def uncovered(missing: dict[str, int]) -> Markup:
    """Ops without a latency; they add nothing to the step time."""
    if not missing:
        return paragraph("Every op is covered.")
    rows = ((text_td(name), count_td(count)) for name, count in missing.items())
    return table("Ops without a latency", ("op", "nodes"), rows)


# Peak memory per rank, as the console states it.


COMPARED = ("counted as recorded", "measured", "error")
RESERVED = "reserved at most"


def peak_memory(prediction: StepPrediction) -> Markup:
    """One row per rank: the peak, at which op, of what it is made; then whether it fits."""
    parts = list(dict.fromkeys(str(part) for rank in prediction.peak_memory for part in rank.peak.parts_bytes))
    used = [part for part in parts if any(_of(rank, part) for rank in prediction.peak_memory)]
    names = (part.replace("_", " ") for part in used)
    heads = ("rank", "peak", RESERVED, *names, "DDP's buckets", "at", *COMPARED)
    rows = []
    for rank in prediction.peak_memory:
        peak, made_of = rank.peak, [_size(_of(rank, part)) for part in used]
        most = Td("-") if peak.most_reserved_bytes is None else _size(peak.most_reserved_bytes)
        sizes = (rank_td(peak.rank), _size(peak.peak_bytes), most, *made_of, _size(peak.buckets_bytes))
        rows.append((*sizes, text_td(peak.at or UNKNOWN), *_compared(rank)))
    sentences = fit_lines(prediction.peak_memory, prediction.hardware)
    edited = [line for line in memory_lines(prediction) if line.startswith("what if")]
    unknown = () if any(rank.measured for rank in prediction.peak_memory) else COMPARED
    if all(rank.peak.most_reserved_bytes is None for rank in prediction.peak_memory):
        unknown = (*unknown, RESERVED)
    return Markup(f"{table('Peak memory', heads, rows, unknown)}{''.join(map(paragraph, [*sentences, *edited]))}")


def _of(rank: RankMemory, part: str) -> int:
    return next((n for name, n in rank.peak.parts_bytes.items() if str(name) == part), 0)


def _size(num_bytes: int) -> Td:
    return Td(bytes_text(num_bytes), float(num_bytes))


def _compared(rank: RankMemory) -> tuple[Td, Td, Td]:
    if rank.measured is None or rank.error is None:
        return Td("-"), Td("-"), Td("-")
    return _size(rank.measured.counted_bytes(rank.peak)), _size(rank.measured.peak_bytes), signed_share_td(rank.error)
