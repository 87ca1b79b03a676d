"""Constants: the shipped file, the way to YAML and back, fitting on graphs."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from toys import make_graph

from gnnperf.analytic import AnalyticConstants, fit_host_overheads, fit_lags, load_constants, on_reference_host
from gnnperf.analytic.constants import LAG_CLASSES, default_constants
from gnnperf.analytic.host_fit import robust_mean
from gnnperf.core import InputError, NodeType
from gnnperf.graph.execution_graph import ExecutionGraph
from research.fitting.files import save_constants


def host_graph(rows: list[tuple[str, str, float]]) -> ExecutionGraph:
    return make_graph(
        [{"node_type": NodeType.HOST, "segment": s, "op_name": o, "latency_us": t} for s, o, t in rows], []
    )


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_shipped_constants_have_every_class_and_say_where_they_come_from(kind: str) -> None:
    constants = default_constants(kind)
    assert {"T1", "T2", "T3", "T4", "T5"} <= set(constants.segment_us)
    assert all(set(constants.lag_us[kind]) == set(LAG_CLASSES) for kind in ("gpu", "cpu"))
    assert "Do not judge" in constants.provenance
    assert (constants.op_prices is not None) == (kind == "cpu")


def test_there_and_back(tmp_path: Path) -> None:
    before = AnalyticConstants(
        host_overhead_us={("T2", "aten::mm"): 9.25, ("T4", "cudaLaunchKernel"): 7.0},
        segment_us=default_constants().segment_us, lag_us=default_constants().lag_us,
        graph_launch_us={"call": 9.0, "kernel": 0.5},
        collective_floor_us={"gpu": 1.0, "cpu": 2.0}, copy_floor_us={"gpu": 1.0, "cpu": 2.0}, provenance="test",
    )  # fmt: skip
    save_constants(before, tmp_path / "c.yaml")
    assert load_constants(tmp_path / "c.yaml") == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.yaml"]  # nothing half-written next to it


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("pageable_share", 0, "pageable_share.*above 1e-06"),
        ("roofline_power", "soft", "roofline_power"),
        ("segment_us", {"T1": 1.0}, "missing or unknown"),
        ("host_overhead_us", {"aten::mm": 1.0}, "text | text"),
        ("host_overhead_us", {"T2 | aten::mm": -1.0}, "aten::mm"),
        ("lag_us", {"gpu": {}, "cpu": {}}, "lag_us.gpu"),
        ("collective_floor_us", {"gpu": -1.0, "cpu": 1.0}, "collective_floor_us.gpu"),
    ],
)
def test_bad_constants_are_named(key: str, value: object, message: str, tmp_path: Path) -> None:
    save_constants(default_constants(), tmp_path / "c.yaml")
    raw = yaml.safe_load((tmp_path / "c.yaml").read_text())
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({**raw, key: value}))
    with pytest.raises(InputError, match=message):
        load_constants(tmp_path / "c.yaml")


def test_robust_mean_drops_what_lies_outside_the_fence() -> None:
    assert robust_mean(np.array([1.0, 2.0, 3.0, 4.0, 1000.0])) == 2.5
    assert robust_mean(np.array([7.0])) == 7.0
    assert robust_mean(np.array([5.0, 5.0, 5.0, 5.0, 6.0])) == 5.2  # whole microseconds: the quartiles coincide


def test_fit_host_overheads() -> None:
    rows = [("T2", "aten::mm", t) for t in (4.0, 5.0, 6.0, 5.0, 5.0)] + [("T2", "aten::add", 1.0)]
    unlabeled = [("T3", "aten::mm", np.nan)] * 6
    fitted = fit_host_overheads([host_graph(rows[:3]), host_graph(rows[3:] + unlabeled)])
    assert fitted.host_overhead_us == {("T2", "aten::mm"): 5.0}  # add has too few samples
    assert fitted.segment_us["T2"] == pytest.approx((4 + 5 + 6 + 5 + 5 + 1) / 6)
    assert fitted.segment_us["T3"] == default_constants().segment_us["T3"]


def test_overheads_are_those_of_the_reference_host() -> None:
    slow = host_graph([("T2", "aten::mm", t) for t in (8.0, 10.0, 12.0, 10.0, 10.0)])
    fitted = fit_host_overheads([on_reference_host(slow, 0.5)])
    assert fitted.host_overhead_us == {("T2", "aten::mm"): 5.0}
    assert on_reference_host(slow, 1.0) is slow


def test_fit_of_nothing_is_the_base() -> None:
    assert fit_host_overheads([]) == default_constants()
    assert fit_lags([], "gpu") == default_constants()


def test_fit_lags() -> None:
    rows: list[dict[str, object]] = [{"node_type": NodeType.HOST, "segment": "T4"}] * 7
    edges = [(0, i, "launches") for i in range(1, 7)]
    graph = make_graph(rows, edges, lags={(0, i): ("launch", float(i)) for i in range(1, 6)})
    fitted = fit_lags([graph], "gpu")
    assert fitted.lag_us["gpu"]["launch"] == 3.0
    assert fitted.lag_us["gpu"]["sync"] == default_constants().lag_us["gpu"]["sync"]
    assert fitted.lag_us["cpu"] == default_constants().lag_us["cpu"]


def test_exits_are_fitted_with_the_first_ranks_zero_and_arrivals_are_not() -> None:
    rows: list[dict[str, object]] = [
        {"node_type": NodeType.COMM, "op_name": "c10d::allreduce_", "segment": segment, "latency_us": latency}
        for segment, latency in (
            ("arrive", 99.0),
            ("exit", 0.0),
            ("exit", 30.0),
            ("exit", 30.0),
            ("exit", 20.0),
            ("exit", 20.0),
        )
    ]
    fitted = fit_host_overheads([make_graph(rows, [])])
    assert fitted.host_overhead_us == {("exit", "c10d::allreduce_"): 20.0}
    assert fitted.segment_us["arrive"] == default_constants().segment_us["arrive"]
