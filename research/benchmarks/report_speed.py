"""How long report.html and timeline.json.gz take to write, how large they are, and how soon a browser shows the page.

    python -m research.benchmarks report_speed

dlrm-8     the public trace of 8 ranks (GNNPERF_DATA_MIRROR; left out without it)
planned    gpt_405b with five micro-batches under 1F1B: 16 ranks, more than 200,000 nodes
as if recorded  the planned one with measured times, intervals and noise on every number, which do not compress
a million       the same with 24 micro-batches: predicted and measured slices and arrows, more than a million events

Seconds are for nodes and page from a finished prediction, medians of repeats, on the clock and of the processor: on a
machine that has other work they are far apart. Opening is from asking for the file to
the drawn timeline, in a headless Chromium where there is one; a frame is the whole step drawn once more.
"""

from __future__ import annotations

import gzip
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from gnnperf.generate import read_plan
from gnnperf.hardware import load_device, read_yaml
from gnnperf.predict import Mode, Request, StepPrediction, predict
from gnnperf.report.page import html_report
from gnnperf.report.summary import nodes_table
from gnnperf.report.timeline import write_timeline
from research.benchmarks._chromium import Page, chromium
from research.benchmarks._frame import run_main

TRACE = "facebookresearch+param/et_replay/tests/inputs/dlrm_kineto.tar.gz"
PLAN = Path("conf/plan/gpt_405b.yaml")
MICRO_BATCHES, OF_A_MILLION, SEQUENCES = 5, 24, 128  # per replica; sequences that a micro-batch of all replicas takes
REPEATS = 3
NOISE = 0.05
# A frame is over when a pixel of it can be read.
FRAMES = f"""(async () => {{
  const timeline = new Timeline(await timelineData()), found = [];
  for (let repeat = 0; repeat < {REPEATS}; repeat++) {{
    const begin = performance.now();
    timeline.draw();
    timeline.context.getImageData(0, 0, 1, 1);
    found.push(performance.now() - begin);
  }}
  return found;
}})()"""
DRAWN = "document.documentElement.dataset.timeline"


def dlrm(mirror: Path) -> StepPrediction:
    """The step of the public trace, on its own hardware."""
    return predict(Request(trace=mirror / TRACE, mode=Mode.analytic, findings=True))


def planned(micro_batches: int = MICRO_BATCHES, findings: bool = True) -> StepPrediction:
    """The step of the plan with so many micro-batches per replica."""
    given = read_yaml(PLAN)
    schedule = given["schedule"]
    assert isinstance(schedule, dict), "conf/plan/gpt_405b.yaml has one"
    smaller = {"global_batch": SEQUENCES * micro_batches, "pipeline": "1f1b", "chunks": 1}
    plan = read_plan({**given, "schedule": {**schedule, **smaller}}, str(PLAN))
    return predict(Request(plan=plan, mode=Mode.analytic, hardware=load_device("h100_sxm"), findings=findings))


def as_if_recorded(answer: StepPrediction) -> StepPrediction:
    """The same nodes with numbers of their own each: latencies, their intervals, measured starts and latencies."""
    draw = np.random.default_rng(0)
    prediction = answer.prediction
    latency_us, measured_us = (
        prediction.latency_us * draw.lognormal(0.0, NOISE, len(prediction.latency_us)) for _ in "12"
    )
    start_us = answer.schedule.start_us * (1.0 + NOISE) + draw.uniform(0.0, 1.0, len(latency_us))
    nodes = prediction.graph.nodes.assign(latency_us=measured_us, start_us=start_us, blocked_us=0.0)
    noisy = replace(
        prediction, graph=replace(prediction.graph, nodes=nodes), latency_us=latency_us,
        latency_low_us=latency_us * draw.uniform(0.7, 0.9, len(latency_us)),
        latency_high_us=latency_us * draw.uniform(1.1, 1.4, len(latency_us)),
    )  # fmt: skip
    measured = answer.step_time_us * (1.0 + NOISE)
    return replace(answer, prediction=noisy, traced_step_time_us=measured, measured_step_time_us=measured)


def answers() -> Iterator[tuple[str, StepPrediction]]:
    """(name, answer) of each report."""
    mirror = os.environ.get("GNNPERF_DATA_MIRROR")
    if mirror:
        yield "dlrm-8", dlrm(Path(mirror))
    step = planned()
    yield "planned", step
    yield "as if recorded", as_if_recorded(step)


def written_s(write: Callable[[Path], object], path: Path) -> tuple[list[float], list[float]]:
    """Seconds of each repeat on the clock and of the processor; what was written lies at `path`."""
    clock, processor = list[float](), list[float]()
    for _ in range(REPEATS):
        begins = time.perf_counter(), time.process_time()
        write(path)
        clock.append(time.perf_counter() - begins[0])
        processor.append(time.process_time() - begins[1])
    return clock, processor


def write_report(answer: StepPrediction, path: Path) -> None:
    """The page, from the nodes on."""
    path.write_text(html_report(answer, nodes_table(answer)), encoding="utf-8")


def opened_s(path: Path) -> list[float]:
    """Seconds of each repeat until the timeline is drawn; [] without a Chromium."""
    program, result = chromium(), []
    if program is None:
        return []
    with Page(program) as page:
        for _ in range(REPEATS):
            page.open(path, DRAWN)
            result.append(page.opened_s)
            page.call("Page.navigate", url="about:blank")
    return result


def frame_ms(path: Path) -> list[float]:
    """Milliseconds of each repeat of drawing the whole timeline; [] without a Chromium."""
    program = chromium()
    if program is None:
        return []
    with Page(program) as page:
        page.open(path, DRAWN)
        return [float(ms) for ms in page.ask(FRAMES)]


def spread(result: list[float]) -> str:
    """Median (least to most)."""
    return f"{np.median(result):.2f} ({min(result):.2f} to {max(result):.2f})" if result else "no Chromium"


def main() -> None:
    """Print one row per report."""
    table = Table("report", "ranks", "nodes", "written s", "of it CPU s", "size MB", "opened s", "frame ms")
    with tempfile.TemporaryDirectory() as folder:
        for name, answer in answers():
            path, graph = Path(folder) / "report.html", answer.prediction.graph
            written = written_s(partial(write_report, answer), path)
            size = f"{path.stat().st_size / 1e6:.2f}"
            ranks, nodes = str(len(graph.ranks)), f"{graph.num_nodes:,}"
            seen = spread(opened_s(path)), spread(frame_ms(path))
            table.add_row(name, ranks, nodes, *map(spread, written), size, *seen)
        Console(width=150).print(table)
        Console(width=150).print(timeline_row(Path(folder) / "timeline.json.gz"))


def timeline_row(path: Path) -> Table:
    """The timeline of more than a million events, read again as JSON."""
    answer = as_if_recorded(planned(OF_A_MILLION, findings=False))
    written = written_s(partial(write_timeline, answer), path)
    events = len(msgspec.json.decode(gzip.decompress(path.read_bytes()))["traceEvents"])
    table = Table("timeline", "nodes", "events", "written s", "of it CPU s", "size MB")
    nodes = f"{answer.prediction.graph.num_nodes:,}"
    table.add_row("a million", nodes, f"{events:,}", *map(spread, written), f"{path.stat().st_size / 1e6:.2f}")
    return table


if __name__ == "__main__":
    run_main(main)
