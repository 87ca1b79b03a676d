"""The page, in its order: the prediction, warnings, what-ifs, where the time goes, the step as it runs, its ops."""

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from html import escape
from typing import Any

import pandas as pd

from gnnperf.core import counted
from gnnperf.predict import StepPrediction
from gnnperf.report import text, throughput
from gnnperf.report.page import breakdown, markup, memory, ops, path
from gnnperf.report.page.markup import Markup, Td, note, paragraph, section, table, text_td
from gnnperf.report.page.timeline_data import timeline_data
from gnnperf.report.summary import family_errors, work_table
from gnnperf.whatif import Finding

UNNAMED_HARDWARE = "hardware that the trace does not name"


def warnings(estimate: StepPrediction) -> Markup:
    """The first warnings; nothing where there is none. All others are in the provenance."""
    shown = estimate.warnings[: text.MOST_WARNINGS]
    if not shown:
        return Markup("")
    sentences = "".join(f"<li>{escape(warning)}</li>" for warning in shown)
    count = counted(len(shown), "warning")
    return Markup(f'<section class="warnings" aria-label="Warnings"><h2>{count}</h2><ul>{sentences}</ul></section>')


def prediction_cards(estimate: StepPrediction, ranks: pd.DataFrame) -> Markup:
    """One card each of what is known: step time, interval, measured value, error, rates, cost, memory, time of ranks.

    `ranks` is the `breakdown.occupancy` of the estimate.
    """
    bound = "at least " if estimate.is_lower_bound else ""
    kind = estimate.step_time_kind
    cards = (
        ("predicted", f"predicted {kind}", f"{bound}{text.time_text(estimate.step_time_us)}", text.MEANING[kind]),
        *_evidence(estimate),
        *_rates(estimate),
        *_fullest(estimate),
        *_of_ranks(estimate, ranks),
        *(
            ("stalls", "stalls", text.time_text(one.gain_us), one.cause)
            for one in estimate.findings or ()
            if one.rule == "stalls" and one.gain_us is not None
        ),
        ("coverage", *_covered(estimate)),
    )
    drawn = ""
    for key, name, value, sentences in cards:
        shown = re.sub(r"(?<=\d) ", "&nbsp;", escape(value))  # a number and its unit stay on one line
        given = f'<dt>{escape(name)}</dt><dd id="{key}">{shown}</dd><dd class="note">{escape(sentences)}</dd>'
        drawn += f'<div class="card">{given}</div>'
    return Markup(f'<dl class="cards">{drawn}</dl>')


Cards = Iterable[tuple[str, str, str, str]]  # key, name, value, note


def _evidence(estimate: StepPrediction) -> Cards:
    """Interval, measured value, and the error or ratio."""
    if estimate.step_time_interval_us is not None and estimate.interval_level is not None:
        low, high = map(text.time_text, estimate.step_time_interval_us)
        level = f"{100.0 * estimate.interval_level:.0f} % of steps lie within theirs"
        yield "interval", "interval", f"{low} to {high}", level
    if estimate.measured_step_time_us is not None:
        where = f"on {estimate.traced_hardware or UNNAMED_HARDWARE}"
        yield "measured", f"measured {estimate.step_time_kind}", text.time_text(estimate.measured_step_time_us), where
    if estimate.step_time_ratio is not None:
        bounds = estimate.ratio_interval
        within = "" if bounds is None else f", {bounds[0]:.2f} to {bounds[1]:.2f}"
        same_way = "to the step predicted the same way for the traced hardware"
        yield "error", "ratio", f"{estimate.step_time_ratio:.3f}{within}", same_way
    elif estimate.step_time_error is not None:
        left_out = "work that is not covered is left out" if estimate.is_lower_bound else "predicted / measured - 1"
        yield "error", "error", f"{100.0 * estimate.step_time_error:+.1f} %", left_out


def _of_ranks(estimate: StepPrediction, ranks: pd.DataFrame) -> Cards:
    """What ranks do with the step, in the mean over them."""
    mean = ranks.mean() / (estimate.step_time_us or 1.0)
    yield "active", "active", text.share_text(mean["active_us"]), "a kernel, copy or op runs; mean over ranks"
    if len(ranks) > 1 or estimate.prediction.graph.world_size > 1:
        exposed = text.share_text(mean["transfer_us"] + mean["wait_us"])
        yield "exposed", "exposed communication", exposed, "transfers and waits for peers while nothing runs"
    yield "idle", "idle", text.share_text(mean["host_us"] + mean["idle_us"]), "only the host works, or nothing runs"


def _fullest(estimate: StepPrediction) -> Cards:
    """A card of the rank that holds most, of what it has, and whether that fits."""
    if not estimate.peak_memory:
        return
    fullest = max(estimate.peak_memory, key=lambda rank: rank.peak.peak_bytes)
    device = "" if fullest.device_bytes is None else f" of {text.bytes_text(int(fullest.device_bytes))}"
    lines = text.fit_lines(estimate.peak_memory, estimate.hardware)
    fits = next(iter(lines), f"of rank {fullest.peak.rank}, the fullest")
    yield "memory-peak", "peak memory", f"{text.bytes_text(fullest.peak.peak_bytes)}{device}", fits.partition(";")[0]


def _rates(estimate: StepPrediction) -> Cards:
    """Cards of throughput, utilization and cost, where they are known."""
    given = estimate.throughput
    if given is None:
        return
    lines = {line.partition(":")[0]: line.partition(": ")[2] for line in throughput.throughput_lines(estimate)}
    bound = "at most " if estimate.is_lower_bound else ""
    if rate := throughput.rate_text(given):
        yield "throughput", "throughput", f"{bound}{rate}", lines["throughput"]
    if shares := throughput.utilization_text(given):
        yield "utilization", "FLOPs utilization", f"{bound}{shares}", lines["utilization"]
    if cost := throughput.cost_text(estimate):
        name, _, sentence = cost.partition(": ")
        first, _, _ = sentence.partition(" at $") if given.steps is None else sentence.partition(", ")
        total = first if given.cost_usd is None else f"${throughput.number_text(given.cost_usd)}"
        yield "cost", name, total, sentence


def _covered(estimate: StepPrediction) -> tuple[str, str, str]:
    share, missing = estimate.uncovered_measured_share, sum(estimate.uncovered_ops.values())
    nodes = f"{missing:,} nodes without a latency" if missing else "every node has a latency"
    if share is not None:
        return "covered", text.share_text(1.0 - share), f"of the measured node time; {nodes}"
    return ("covered", nodes, "by number: nothing was measured") if missing else ("covered", "all nodes", "")


def whatif(estimate: StepPrediction, nodes: pd.DataFrame) -> Markup:
    """Both steps as bars, the change by node type, and the edits; nothing without edits."""
    if estimate.whatif is None:
        return Markup("")
    from gnnperf.report.page.changes import before_and_after  # comparisons also read traces: for edits only

    first, *others = text.whatif_lines(estimate)
    drawn = before_and_after(estimate, estimate.whatif.prediction, nodes)
    return section("what-if", "What if", f"<p><b>{escape(first)}</b></p>", drawn, *map(paragraph, others))


def findings(result: Sequence[Finding]) -> Markup:
    """Each finding with its evidence."""
    if not result:
        return paragraph("No rule finds anything.")
    return Markup("\n".join(
        f"<details open><summary><b>{escape(text.finding_head(one))}</b></summary><ul>"
        + "".join(f"<li>{escape(line)}</li>" for line in text.finding_details(one))
        + "</ul></details>"
        for one in result
    ))  # fmt: skip


# The top of the page: the prediction, its warnings, what edits make of it.


TIMELINE_HELP = (
    "Drag to pan; Ctrl and the wheel, or + and -, to zoom; arrows pan, 0 shows all. Shift and drag chooses a stretch. "
    "N and P go along the critical path, which is underlined. Slices narrower than a pixel are drawn together. Dashed: "
    "where the predicted step begins and ends."
)
PERFETTO = Markup(
    '<p class="note">In Perfetto: open <a href="https://ui.perfetto.dev" target="_blank" rel="noopener noreferrer">'
    'ui.perfetto.dev</a>, press "Open trace file", and choose <a href="timeline.json.gz" download>timeline.json.gz</a> '
    "in the folder of this page. Perfetto reads the file in your browser; it is not uploaded.</p>"
)
TIMELINE = (
    "<noscript><p>The timeline needs JavaScript; everything else on this page does not.</p></noscript>"
    '<div id="timeline-tools" class="tools" hidden></div>'
    '<div id="timeline-box" hidden><div id="timeline-size"><canvas id="timeline-canvas" tabindex="0" role="img" '
    'aria-label="Timeline of all ranks" aria-describedby="timeline-said"></canvas></div></div>'
    '<ul id="timeline-keys" class="keys"></ul><p id="timeline-said" class="note" aria-live="polite"></p>'
    '<div id="timeline-tip" role="tooltip" hidden></div>'
)


def html_report(estimate: StepPrediction, nodes: pd.DataFrame, slices: pd.DataFrame, given: dict[str, Any]) -> str:
    """The page of a prediction.

    `nodes` is its `nodes_table`, texts coded or not, of which all figures next to those of prediction.json are made;
    `slices` its `timeline.tracks`; `given` its prediction.json.
    """
    with ThreadPoolExecutor(1) as other:  # packs columns without the interpreter's lock
        drawn = other.submit(timeline_data, estimate, nodes, slices)
        ranks = breakdown.occupancy(nodes, given)
        parts = list(_sections(estimate, nodes, ranks, path.path_nodes(nodes, given)))
    contents = "".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title, _ in parts)
    return "\n".join((
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        markup.policy(),
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(text.headline(estimate))}</title>\n<style>\n{markup.asset(markup.STYLE)}</style>\n</head>\n<body>",
        '<a class="skip" href="#main">Skip to the prediction</a>',
        f'<header><p class="note">{escape(text.target(estimate))}</p>',
        '<button id="theme" type="button" hidden></button></header>',
        f'<main id="main">\n<h1>{escape(text.headline(estimate))}</h1>',
        paragraph(text.comparison(estimate)), prediction_cards(estimate, ranks), warnings(estimate),
        whatif(estimate, nodes),
        f'<nav aria-label="Contents"><ul>{contents}</ul></nav>',
        *(section(name, title, content) for name, title, content in parts),
        "</main>",
        markup.json_block("timeline-data", drawn.result()),
        markup.scripts(),
        "</body>\n</html>\n",
    ))  # fmt: skip


def _sections(
    estimate: StepPrediction, nodes: pd.DataFrame, ranks: pd.DataFrame, on_path: pd.DataFrame
) -> Iterable[tuple[str, str, str]]:
    work, step_us = work_table(nodes), estimate.step_time_us
    if estimate.alternatives:
        heads, rows = throughput.alternative_heads(estimate), throughput.alternative_rows(estimate)
        devices = table("The step on other hardware", heads, [tuple(map(Td, row)) for row in rows])
        yield "hardware", "On other hardware", devices
    if estimate.findings is not None:
        yield "findings", "What holds the step up", findings(estimate.findings)
    yield "ranks", "Active, idle, exposed communication", breakdown.rank_time(ranks, step_us)
    yield "sources", "Where latencies come from", breakdown.sources(estimate) + ops.uncovered(estimate.uncovered_ops)
    yield "breakdown", "Where the time goes", f"{note(breakdown.SUMS_NOTE)}\n{breakdown.groups(estimate, work)}"
    yield "path", "Critical path", "\n".join(part(on_path, step_us) for part in (path.picture, path.listing))
    yield "timeline", "Timeline", f"{note(TIMELINE_HELP)}{PERFETTO}{TIMELINE}"
    yield "ops", "Top ops", ops.ops(work, step_us)
    measured = estimate.measured_step_time_us is not None
    errors = family_errors(work) if measured else pd.DataFrame()
    yield "errors", "Errors by op family", ops.errors(errors, estimate)
    if estimate.peak_memory:
        yield "memory", "Peak memory", ops.peak_memory(estimate) + memory.timelines(estimate)
    steps, others = (*text.steps_line(estimate), *text.profiler_line(estimate)), estimate.warnings[text.MOST_WARNINGS :]
    values = ((Td(name), text_td(value)) for name, value in _flat(estimate.provenance))
    sentences = "".join(map(paragraph, (*steps, *others, *estimate.notes)))
    yield "provenance", "Provenance", sentences + table("Versions and inputs", ("what", "value"), values)


def _flat(values: dict[str, object], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", "none" if value is None else str(value)
