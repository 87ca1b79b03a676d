"""Answers whose pages are large, and pages as predict.py writes them."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from gnnperf.generate import read_plan
from gnnperf.hardware import load_device, read_yaml
from gnnperf.predict import Mode, Request, StepPrediction, predict
from gnnperf.report.json_document import document
from gnnperf.report.page import html_report
from gnnperf.report.summary import nodes_table
from gnnperf.report.timeline import tracks

TRACE = "facebookresearch+param/et_replay/tests/inputs/dlrm_kineto.tar.gz"
PLAN = Path("conf/plan/gpt_405b.yaml")
NOISE = 0.05
DRAWN = "document.documentElement.dataset.timeline"


def page_of(result: StepPrediction) -> str:
    """report.html."""
    return html_report(result, nodes_table(result), tracks(result), document(result))


def dlrm(mirror: Path) -> StepPrediction:
    """The step of the public trace, on its own hardware."""
    return predict(Request(trace=mirror / TRACE, mode=Mode.analytic, findings=True))


def planned() -> StepPrediction:
    """A step of more than 200,000 nodes on 16 ranks: gpt_405b with few micro-batches under 1F1B."""
    given = read_yaml(PLAN)
    schedule = given["schedule"]
    assert isinstance(schedule, dict), "conf/plan/gpt_405b.yaml has one"
    smaller = {"global_batch": 128 * 5, "pipeline": "1f1b", "chunks": 1}
    plan = read_plan({**given, "schedule": {**schedule, **smaller}}, str(PLAN))
    return predict(Request(plan=plan, mode=Mode.analytic, hardware=load_device("h100_sxm"), findings=True))


def as_if_recorded(result: StepPrediction) -> StepPrediction:
    """The same nodes with numbers of their own each: latencies, their intervals, measured starts and latencies."""
    draw = np.random.default_rng(0)
    prediction = result.prediction
    latency_us, measured_us = (
        prediction.latency_us * draw.lognormal(0.0, NOISE, len(prediction.latency_us)) for _ in "12"
    )
    start_us = result.schedule.start_us * (1.0 + NOISE) + draw.uniform(0.0, 1.0, len(latency_us))
    nodes = prediction.graph.nodes.assign(latency_us=measured_us, start_us=start_us, blocked_us=0.0)
    noisy = replace(
        prediction, graph=replace(prediction.graph, nodes=nodes), latency_us=latency_us,
        latency_low_us=latency_us * draw.uniform(0.7, 0.9, len(latency_us)),
        latency_high_us=latency_us * draw.uniform(1.1, 1.4, len(latency_us)),
    )  # fmt: skip
    measured = result.step_time_us * (1.0 + NOISE)
    return replace(result, prediction=noisy, traced_step_time_us=measured, measured_step_time_us=measured)
