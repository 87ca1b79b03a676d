"""Which processor a checkpoint learned from, and which one is asked about."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from toys import two_rank_graph

from gnnperf.analytic import AnalyticPredictor
from gnnperf.hardware import default_cluster, load_device
from gnnperf.predict.processors import WithoutIntervals, learned_on, other_processor


def recorded(root: Path, run: str, *processors: str) -> Path:
    """A folder with a card that names the processor of every rank."""
    (root / run).mkdir(parents=True)
    ranks = [{"rank": rank, "device": {"kind": "cpu", "name": name}} for rank, name in enumerate(processors)]
    (root / run / "run.json").write_text(json.dumps({"ranks": ranks}))
    return root / run


def test_another_processor_is_named(tmp_path: Path) -> None:
    trace = recorded(tmp_path, "mine", "Xeon")
    said = other_processor(trace, ("Epyc", "Grace"))
    assert "ran on Xeon" in said and "runs on Epyc, Grace" in said
    assert other_processor(trace, ("Epyc", "Xeon")) == ""


def test_what_is_unknown_says_nothing(tmp_path: Path) -> None:
    assert other_processor(recorded(tmp_path, "mine", "Xeon"), ()) == ""  # an older checkpoint
    assert other_processor(recorded(tmp_path, "bare"), ("Epyc",)) == ""
    assert other_processor(tmp_path / "bare" / "trace.json", ("Epyc",)) == ""  # a file
    assert other_processor(None, ("Epyc",)) == ""  # a plan


def test_a_checkpoint_tells_the_processors_of_its_training() -> None:
    assert learned_on({"training": {"processors": ["Epyc"]}}) == ("Epyc",)
    for unknown in ({}, {"training": None}, {"training": {"seed": 0}}, {"training": {"processors": "Epyc"}}):
        assert learned_on(unknown) == ()


def test_bounds_of_another_processor_are_left_out() -> None:
    graph, cluster = two_rank_graph(), default_cluster(load_device("v100_sxm2_32gb"))

    class Sure(AnalyticPredictor):
        def predict(self, graph, cluster):  # type: ignore[no-untyped-def]
            answer = super().predict(graph, cluster)
            answer.latency_low_us[:], answer.latency_high_us[:] = 1.0, 2.0
            return answer

    sure, unsure = Sure().predict(graph, cluster), WithoutIntervals(Sure(), "said").predict(graph, cluster)
    assert np.isfinite(sure.latency_low_us).all()
    assert np.isnan(unsure.latency_low_us).all() and np.isnan(unsure.latency_high_us).all()
    np.testing.assert_array_equal(unsure.latency_us, sure.latency_us)
    assert unsure.warnings == (*sure.warnings, "said")
