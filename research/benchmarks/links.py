"""Links between device work and CPU ops on real traces: how many, and whether they are right.

    GNNPERF_DATA_MIRROR=DIR python research/benchmarks/links.py

Right: on files whose device events name their CPU op, the names are hidden, the events are linked by correlation, and
the two answers are compared. Enough: of the device events inside whole steps whose launch is in the file, the share
tied to a CPU op; and apart, those launched where no op is open (from Python, between ops), which are tied to their
launch only.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from gnnperf.core import DEVICE_KINDS, EventKind, InputError, Link
from gnnperf.trace import linking
from gnnperf.trace.assembly import Assembled, assemble
from gnnperf.trace.linking import clocks_differ
from gnnperf.trace.trace_sources import Source, sources
from research.benchmarks._frame import print_head, print_row, run_main, show
from research.benchmarks._public_runs import graph_recordings, imported, mirror
from research.benchmarks._results import save_result

RUNS = ("dlrm-8", "megatron-tp2", "torchrec/")


def print_collectives() -> None:
    """Print one line per run."""
    print_head("run", "ranks", "collectives matched over all ranks", "without all peers", "inconsistent")
    shares = []
    for recording in graph_recordings(RUNS):
        _, graph = imported(recording)
        counts = graph.counts or {}
        matched, missing = counts["collectives_matched"], counts["collectives_without_all_peers"]
        share = matched / max(matched + missing, 1)
        shares.append(100 * share)
        found = f"{matched} of {matched + missing} ({share:.1%})"
        print_row(recording.name, len(graph.ranks), found, missing, counts["collectives_inconsistent"])
    save_result("collectives_matched", min(shares))


@dataclass(frozen=True)
class Links:
    """Counts of one file.

    Attributes:
        device_events: kernels, copies, memsets.
        before_window: launched before the window.
        in_steps: inside whole steps, launch in the file.
        tied: of these, tied to a CPU op.
        opless: of these, launched where no op of the thread is open, nor within the clocks' disagreement of it.
        compared: device events with a true id whose launch is in the file; 0 if the file has no true ids.
        agreeing: of these, linked to the same op when the ids are hidden.
    """

    method: str
    device_events: int
    before_window: int
    in_steps: int
    tied: int
    opless: int
    compared: int
    agreeing: int


def measure(table: Assembled) -> Links:
    """Count and compare the links of one file."""
    links = linking.link(table)
    hidden = linking.link(table, trust_ids=False)
    device = table.is_kind(*DEVICE_KINDS)
    in_steps = device & (links.launch_event >= 0) & inside_steps(table, links.launch_event)
    tied = in_steps & (links.op_event >= 0)
    true_ids = links.link == linking.LINKS.index(Link.EXTERNAL_ID)
    compared = true_ids & (links.launch_event >= 0)
    opless = in_steps & ~tied & ~near_an_op(table, links.launch_event)
    return Links(
        str(links.method), int(device.sum()), int((links.link == linking.LINKS.index(Link.BEFORE_WINDOW)).sum()),
        int(in_steps.sum()), int(tied.sum()), int(opless.sum()), int(compared.sum()),
        int((compared & (links.op_event == hidden.op_event)).sum()),
    )  # fmt: skip


CLOCKS_AGREE_NS, CLOCKS_DIFFER_NS = 1_000, 15_000  # rounding to whole us; see gnnperf/trace/linking.py


def near_an_op(table: Assembled, launch: np.ndarray) -> np.ndarray:
    """[num_events] bool: an op of the launch's thread overlaps the launch, give or take what the clocks differ by."""
    start, thread = table.columns["start_ns"], table.columns["thread"]
    end = start + table.columns["duration_ns"]
    slack = CLOCKS_DIFFER_NS if clocks_differ(table) else CLOCKS_AGREE_NS
    near = np.zeros(len(table), dtype=bool)
    is_op = table.is_kind(EventKind.CPU_OP)
    for one in np.unique(thread[is_op]):
        starts, ends = start[is_op & (thread == one)], np.sort(end[is_op & (thread == one)])
        rows = np.flatnonzero((launch >= 0) & (thread[launch] == one))
        begun = np.searchsorted(starts, end[launch[rows]] + slack, side="right")
        ended = np.searchsorted(ends, start[launch[rows]] - slack, side="left")
        near[rows] = begun > ended
    return near


def inside_steps(table: Assembled, launch: np.ndarray) -> np.ndarray:
    """[num_events] bool: launched inside a step mark; everywhere in a file without marks."""
    name = table.columns["name"]
    marks = np.array([t.startswith("ProfilerStep") for t in name.categories] + [False])[name.codes]
    marks &= table.is_kind(EventKind.ANNOTATION)
    if not marks.any():
        return np.ones(len(table), dtype=bool)
    start = table.columns["start_ns"]
    end = start + table.columns["duration_ns"]
    at = start[launch]  # [num_events]
    return np.logical_or.reduce([(start[m] <= at) & (at <= end[m]) for m in np.flatnonzero(marks)])


def files(folder: Path) -> Iterator[Source]:
    """Every Kineto file of the mirror."""
    with (folder / "catalog.csv").open(newline="") as stream:
        rows = [r for r in csv.DictReader(stream) if r["kind"] == "kineto" or "kineto" in r["file"].split("/")[-1]]
    for row in rows:
        if row["kind"] in ("kineto", "archive"):
            yield from sources(folder / row["file"])


def main() -> None:
    """Print one line per file that has device work, and the totals."""
    table = Table(
        "file", "link by", "device", "before", "in steps", "tied %", "tied or no op open %", "true ids", "agree %"
    )
    result = []
    for source in files(mirror()):
        try:
            links = measure(assemble(source.unpack(), source.path))
        except InputError:
            continue
        if links.device_events:
            result.append(links)
            table.add_row("/".join(source.path.split("/")[-2:])[-48:], *records(links))
    total = Links("", *(sum(getattr(x, f) for x in result) for f in list(Links.__dataclass_fields__)[1:]))
    table.add_row("all", *records(total))
    show(table)
    with_ids = [x.agreeing / x.compared for x in result if x.compared]
    below = sum(x.tied < 0.99 * x.in_steps for x in result)
    agreement = f"{percent(total.agreeing, total.compared)} %, worst file {100 * min(with_ids):.2f} %"
    print(f"true ids hidden: {len(with_ids)} files, {total.compared:,} events, agreement {agreement}")
    save_result("links", 100 * total.agreeing / total.compared)
    print(f"tied to their op: {percent(total.tied, total.in_steps)} %; {below} of {len(result)} files below 99 %")
    print(f"tied to their op, or launched where none is open: {percent(total.tied + total.opless, total.in_steps)} %")
    print()
    print_collectives()


def records(x: Links) -> tuple[str, ...]:
    """The columns of one line."""
    return (
        x.method, f"{x.device_events:,}", f"{x.before_window:,}", f"{x.in_steps:,}", percent(x.tied, x.in_steps),
        percent(x.tied + x.opless, x.in_steps), f"{x.compared:,}", percent(x.agreeing, x.compared),
    )  # fmt: skip


def percent(part: int, whole: int) -> str:
    """A share in percent, "-" of nothing."""
    return f"{100 * part / whole:.2f}" if whole else "-"


if __name__ == "__main__":
    run_main(main)
