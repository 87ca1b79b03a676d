"""Host overheads from runs on hosts of several speeds."""

import math

import pandas as pd
import pytest
from toys import make_graph

from gnnperf.analytic import AnalyticConstants, default_constants
from research.fitting.host_runs import HostRun, fit_host_runs, host_run


def run_of(campaign: str, **us: float) -> HostRun:
    """A run with 30 nodes of each op in segment T2; the segment's mean is that of the first op."""
    ops = pd.DataFrame({"segment": "T2", "key": list(us), "us": list(us.values()), "num_nodes": 30})
    return HostRun(campaign, ops, pd.Series({"T2": next(iter(us.values()))}))


def fitted(*runs: HostRun) -> AnalyticConstants:
    return fit_host_runs(runs, default_constants("gpu"))[0]


def test_an_overhead_is_the_geometric_mean_of_campaigns_however_many_runs_one_has() -> None:
    slow = [run_of("slow", mm=40.0) for _ in range(3)]
    result = fitted(run_of("fast", mm=10.0), *slow)
    assert result.host_overhead_us[("T2", "mm")] == pytest.approx(20.0)  # sqrt(10 * 40)
    assert result.segment_us["T2"] == pytest.approx(20.0)
    campaigns = fit_host_runs([run_of("fast", mm=10.0), *slow], result)[1]
    assert campaigns.to_dict() == pytest.approx({"fast": 0.5, "slow": 2.0})


def test_an_op_that_only_the_slow_host_ran_is_scaled_to_the_reference() -> None:
    result = fitted(run_of("fast", mm=10.0, add=10.0), run_of("slow", mm=40.0, add=40.0, mul=40.0))
    assert result.host_overhead_us[("T2", "mul")] == pytest.approx(20.0)


def test_an_op_of_one_run_is_half_way_to_the_mean_of_its_segment() -> None:
    """In log space: 7 ops of 8 us and one of 512, whose mean is 8 * 64 ** (1 / 8). A single run has no effect."""
    ops = {f"op{n}": 8.0 for n in range(7)}
    result = fitted(run_of("one", **ops, rare=512.0))
    usual = 8.0 * 64.0 ** (1 / 8)
    rare, other = math.sqrt(512.0 * usual), math.sqrt(8.0 * usual)
    sums = (7 * 8.0 + 512.0) / (7 * other + rare)  # what all overheads are multiplied by: sums are to be right
    assert result.host_overhead_us[("T2", "rare")] == pytest.approx(rare * sums)
    assert result.host_overhead_us[("T2", "op0")] == pytest.approx(other * sums)


def test_a_run_has_robust_means_of_its_hosts_by_op_and_segment() -> None:
    timed = [("mm", 4.0)] * 7 + [("mm", 900.0), ("add", 0.0)]
    nodes = [{"node_type": "host", "segment": "T2", "op_name": op, "latency_us": us} for op, us in timed]
    run = host_run("one", make_graph(nodes, []))
    assert run.ops.set_index("key")["us"].to_dict() == {"add": 0.05, "mm": 4.0}  # 900: beyond the fence; 0: the least
    assert run.ops.set_index("key")["num_nodes"].to_dict() == {"add": 1, "mm": 8}
    assert run.segments.to_dict() == {"T2": pytest.approx(28 / 8)}


def test_an_op_with_few_nodes_backs_off_to_its_segment() -> None:
    run = run_of("one", mm=10.0)
    run.ops.loc[0, "num_nodes"] = 29
    assert ("T2", "mm") not in fitted(run).host_overhead_us
