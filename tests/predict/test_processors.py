"""Which processor a checkpoint learned from, and which one is requested."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from toys import two_rank_graph

from gnnperf.analytic import AnalyticPredictor
from gnnperf.gnn.data.recordings import Processor
from gnnperf.hardware import default_cluster, load_device
from gnnperf.predict.api import NoBounds, calibrated_on, other_processor

EPYC, GRACE, XEON = Processor("Epyc", "AVX512"), Processor("Grace"), Processor("Xeon", "AVX512")


def recorded(root: Path, run: str, *processors: Processor) -> Path:
    """A folder with a card that names the processor of every rank."""
    (root / run).mkdir(parents=True)
    ranks = [{"rank": rank, "device": {"kind": "cpu", **asdict(one)}} for rank, one in enumerate(processors)]
    (root / run / "run.json").write_text(json.dumps({"ranks": ranks}))
    return root / run


def test_another_processor_is_named(tmp_path: Path) -> None:
    trace = recorded(tmp_path, "mine", XEON)
    sentences = other_processor(trace, (EPYC, GRACE))
    assert "ran on Xeon (AVX512)" in sentences and "measured on Epyc (AVX512), Grace:" in sentences
    assert other_processor(trace, (EPYC, XEON)) == ""


def test_one_name_may_hide_two_processors(tmp_path: Path) -> None:
    """A virtual machine says "AMD EPYC", whichever generation it is."""
    trace = recorded(tmp_path, "mine", Processor("Epyc", "AVX2"))
    assert "ran on Epyc (AVX2)" in other_processor(trace, (EPYC,))
    assert other_processor(trace, (Processor("Epyc"),)) == ""  # an older checkpoint says no more


def test_what_is_unknown_states_nothing(tmp_path: Path) -> None:
    assert other_processor(recorded(tmp_path, "mine", XEON), ()) == ""  # an older checkpoint
    assert other_processor(recorded(tmp_path, "bare"), (EPYC,)) == ""
    assert other_processor(tmp_path / "bare" / "trace.json", (EPYC,)) == ""  # a file
    assert other_processor(None, (EPYC,)) == ""  # a plan


def test_a_checkpoint_reports_where_its_errors_were_measured() -> None:
    assert calibrated_on({"training": {"processors": [asdict(EPYC), asdict(GRACE)]}}) == (EPYC, GRACE)
    assert calibrated_on({"training": {"processors": ["Epyc"]}}) == (Processor("Epyc"),)  # an older one
    for unknown in ({}, {"training": None}, {"training": {"seed": 0}}, {"training": {"processors": "Epyc"}},
                    {"training": {"processors": [{"capability": "AVX2"}, 7]}}):  # fmt: skip
        assert calibrated_on(unknown) == ()


def test_bounds_of_another_processor_are_left_out() -> None:
    graph, cluster = two_rank_graph(), default_cluster(load_device("v100_sxm2_32gb"))

    class Sure(AnalyticPredictor):
        def predict(self, graph, cluster):  # type: ignore[no-untyped-def]
            answer = super().predict(graph, cluster)
            answer.latency_low_us[:], answer.latency_high_us[:] = 1.0, 2.0
            return answer

    sure, unsure = Sure().predict(graph, cluster), NoBounds("said")(Sure().predict(graph, cluster), cluster)
    assert np.isfinite(sure.latency_low_us).all()
    assert np.isnan(unsure.latency_low_us).all() and np.isnan(unsure.latency_high_us).all()
    np.testing.assert_array_equal(unsure.latency_us, sure.latency_us)
    assert unsure.warnings == (*sure.warnings, "said")
