"""Edits on recorded graphs: two small recordings of a transformer, one of a DLRM."""

from pathlib import Path

import numpy as np
import pytest

from gnnperf import whatif
from gnnperf.analytic import AnalyticPredictor
from gnnperf.graph import ExecutionGraph, load_graph
from gnnperf.hardware import default_cluster, load_device, placed
from gnnperf.predict import Request, predicted
from gnnperf.predict.edited import predict_edited
from gnnperf.predict.request import Profiler
from research.evaluation.reference_run import align_runs

DATASET = Path(__file__).parents[2] / "datasets" / "cpu-gloo"
GPT, LONGER, DLRM = "gpt_l2_w64_s64_b4_x2_lo/1", "gpt_l2_w64_s128_b8_x2_lo/1", "dlrm_t4_r100k_d32_b512_x2_lo/1"
OVERLAPPED = "dlrm_t4_r100k_d16_b1024_bottom512-256_overlap_x2_1g/1"


ON_GPU = DATASET.parent / "h200"
RESNET, SAGE = "resnet_n3_c64_i128_b64_bottleneck_bfloat16_x1_lo", "library_graph_sage_s256_b64_bfloat16_x1_lo"
EXPERTS, T5 = "moe_l4_w1024_e8_s512_b8_h4096_bfloat16_x1_lo", "library_t5_s512_b16_bfloat16_x1_lo"


@pytest.mark.parametrize(
    ("run", "edit", "timed_ms", "within"),
    [
        (RESNET, whatif.DeclarePause(20_000.0, 0, "backward"), 74.9, 0.02),  # kernels of earlier steps hide the pause
        (SAGE, whatif.ScaleBatch(2.0), 12.4, 0.02),  # edges grow with the nodes
        (EXPERTS, whatif.ScaleBatch(2.0), 19.5, 0.06),  # the cumsum goes down twice as many rows
        (T5, whatif.ScaleBatch(2.0), 43.2, 0.02),  # bound by the host, which takes as long
    ],
)
def test_step_on_a_gpu_is_that_of_the_changed_program(
    run: str, edit: whatif.Edit, timed_ms: float, within: float
) -> None:
    """Medians of steps that the recorder timed without the profiler, from cards of the changed programs."""
    graph = load_graph(ON_GPU / run / "1", None)
    request = Request(trace=ON_GPU / run / "1", profiler=Profiler.remove, whatif=[edit])
    result = predicted(graph, request).whatif
    assert result is not None and result.step_time_us / 1e3 == pytest.approx(timed_ms, rel=within)


@pytest.fixture(scope="module")
def steps() -> dict[str, ExecutionGraph]:
    """The second step of each recording, as predictors get it."""
    return {name: load_graph(DATASET / name, None).step(1).for_predictors() for name in (GPT, LONGER, DLRM, OVERLAPPED)}


def test_another_batch_and_length_is_the_other_recording(steps: dict[str, ExecutionGraph]) -> None:
    """FLOPs are those of the other program, and shapes but where a width is a head, a length and a position at once."""
    edited = whatif.apply(steps[GPT], [whatif.ScaleBatch(2.0), whatif.ScaleSequence(to=128)]).graph
    other = steps[LONGER]
    assert np.nansum(edited.nodes["flops"]) == pytest.approx(np.nansum(other.nodes["flops"]), rel=1e-4)
    matched = align_runs(edited, other)
    has = edited.nodes["input_dims"].notna().to_numpy() & (matched >= 0)
    mine, theirs = (graph.nodes["input_dims"].astype(object).to_numpy() for graph in (edited, other))
    assert (mine == theirs[matched])[has].mean() > 0.95
    sent = [graph.nodes["message_bytes"].sum() for graph in (edited, other)]
    assert sent[0] == sent[1]


def test_waiting_later_undoes_waiting_earlier(steps: dict[str, ExecutionGraph]) -> None:
    """The look-ups of a DLRM that computes its dense part while they travel."""
    blocked = whatif.Block("all_to_all")(steps[OVERLAPPED]).graph
    assert waits(blocked) != waits(steps[OVERLAPPED])
    edited = whatif.WaitLater("all_to_all")(blocked)
    assert waits(edited.graph) == waits(steps[OVERLAPPED])


def waits(graph: ExecutionGraph) -> list[tuple[int, int]]:
    result = graph.edges.loc[graph.edges["relation"] == "waits", ["src", "dst"]]
    return sorted(map(tuple, result.to_numpy()))


def test_look_ups_of_one_rank_become_one(steps: dict[str, ExecutionGraph]) -> None:
    """Two tables on each of two ranks."""
    result = whatif.FuseHorizontally(op="aten::embedding_bag")(steps[DLRM])
    assert result.result == ("4 calls become 2: aten::embedding_bag (4)",)
    bags = result.graph.nodes[result.graph.nodes["op_name"] == "aten::embedding_bag"]
    works = bags[bags["node_type"] == "compute"]
    assert set(works["input_dims"].str[:23]) == {"[[200000,32],[8192],[20"}


EDITS: list[tuple[str, list[whatif.Edit]]] = [
    (GPT, [whatif.ChangeDevice("xeon_platinum_8480"), whatif.ChangeLink(bandwidth_factor=2.0)]),
    (GPT, [whatif.ChangeCluster(nodes=2), whatif.ChangeLink(rate_gbit_per_s=1.0, link="inter")]),
    (GPT, [whatif.ScaleSequence(factor=0.5), whatif.ScaleBatch(3.0), whatif.DeclarePause(500.0, 1, "backward")]),
    (GPT, [whatif.OpLatency("aten::linear", 2.0, phase="forward"), whatif.Block()]),
    (DLRM, [whatif.ResizeTables(4.0), whatif.FuseHorizontally(op="aten::embedding_bag"), whatif.ScaleBatch(2.0)]),
]


@pytest.mark.parametrize(("name", "edits"), EDITS)
def test_edits_compose_and_are_covered(steps: dict[str, ExecutionGraph], name: str, edits: list[whatif.Edit]) -> None:
    """The edited graph is a graph, and the analytical model knows every op that an edit brings."""
    graph = steps[name]
    edited = whatif.apply(graph, edits)
    edited.graph.validate()
    cluster = placed(default_cluster(load_device("cpu_generic")), graph.placement, graph.world_size)
    given = predict_edited(edited, AnalyticPredictor(), cluster)
    before = AnalyticPredictor().predict(graph, cluster)
    assert set(given.uncovered_ops) <= set(before.uncovered_ops)
    assert edited.touched.any()
    assert edited.unknown
