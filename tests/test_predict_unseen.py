"""predict.py on unseen ops: a trace of strange ones, and a step in which every predictor covers one kernel."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from synthetic import cluster

from gnnperf.core import Source
from gnnperf.gnn.checkpoint import save_checkpoint
from gnnperf.predict import api
from gnnperf.predict.target import Target
from tests.predict.doubled import doubling
from tests.predict.predictions import op_table
from tests.predict.test_gnn import HUGE, LIKE, NAMELESS, NEW_OP, TABLED, fallback_graph
from tests.test_predict_script import PLAIN, Run, _run  # noqa: F401  # a fixture
from tests.trace.kineto_files import device, document, host, write

DEVICE = "v100_sxm2_32gb"
KERNELS = {  # op -> kernel and us; None: no op is around the launch
    "my_extension::attend": ("attend_kernel<float>", 40.0),
    "triton_poi_fused_mish_3": ("triton_poi_fused_mish_3", 30.0),
    None: ("_my_triton_kernel_0d1d2", 20.0),
    "aten::mm": ("volta_sgemm", 50.0),
}


FIXED = (*PLAIN, "quiet=true", "out=out")


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """A step of 300 us: an extension's op, Triton kernels, one without any op, and a product; no shapes anywhere."""
    events, at = [host("ProfilerStep#1", 0, 299, "user_annotation")], 5.0
    for number, (op, (kernel, us)) in enumerate(KERNELS.items(), start=1):
        if op is not None:
            events.append(host(op, at, 20, **{"External id": number}))
        events.append(host("cuLaunchKernel", at + 5, 5, "cuda_runtime", correlation=number))
        events.append(device(kernel, 50 * number, us, number))
        at += 25
    events.append(host("cudaDeviceSynchronize", at, 280 - at, "cuda_runtime", correlation=99))
    return write(tmp_path / "strange.json", document(events))


@pytest.mark.parametrize("trained", [False, True], ids=["shipped", "checkpoint"])
def test_a_trace_of_ops_never_seen_completes_and_states_what_it_does_not_know(
    run: Run, strange: Path, tmp_path: Path, trained: bool
) -> None:
    words = [f"checkpoint={_checkpoint(tmp_path)}"] if trained else []
    assert run(tmp_path, f"trace={strange}", "evidence=none", *words, *FIXED).returncode == 0
    nodes = pd.read_parquet(tmp_path / "out/nodes.parquet")
    result = json.loads((tmp_path / "out/prediction.json").read_text())
    work = nodes[~nodes["node_type"].astype(str).isin(["device", "link"])]
    assert len(work) > len(KERNELS)
    assert work["source"].notna().all()
    assert (work["reason"].astype(str).str.len() > 0).all()
    without = work[work["source"].astype(str) == Source.UNCOVERED]
    strangers = {op: kernel for op, kernel in KERNELS.items() if op != "aten::mm" or not trained}  # trained on products
    assert set(without["event_name"].astype(str)) == {kernel for kernel, _ in strangers.values()}
    assert without["latency_us"].isna().all()
    uncovered_us, total_us = sum(us for _, us in strangers.values()), work["measured_latency_us"].sum()
    assert result["uncovered_measured_share"] == pytest.approx(uncovered_us / total_us)
    assert set(result["uncovered_ops"]) == {op or "cuLaunchKernel" for op in strangers}
    assert result["step_time_is_lower_bound"]


def test_measured_nodes_of_unknown_ops_are_covered_by_the_trace(run: Run, strange: Path, tmp_path: Path) -> None:
    assert run(tmp_path, f"trace={strange}", *FIXED).returncode == 0
    result = json.loads((tmp_path / "out/prediction.json").read_text())
    assert result["uncovered_ops"] == {}
    assert result["step_time_us"] == pytest.approx(result["measured_step_time_us"], rel=0.01)


def test_too_much_that_is_not_covered_is_refused(run: Run, strange: Path, tmp_path: Path) -> None:
    done = run(tmp_path, f"trace={strange}", "evidence=none", "fallback.max_uncovered_share=0.1", *FIXED)
    assert done.returncode == 3 and "my_extension::attend" in done.stderr


def test_every_rung_models_for_one_kernel(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "load_graph", lambda *_: fallback_graph())
    monkeypatch.setattr(api, "choose_target", lambda graph, *_: Target(cluster(), None))
    trace = tmp_path / "toy.json"
    trace.write_text("{}")
    words = (f"trace={trace}", f"checkpoint={_checkpoint(tmp_path, 'v100')}", f"measured={op_table(tmp_path)}")
    assert run(tmp_path, *words, *FIXED).returncode == 0
    nodes = pd.read_parquet(tmp_path / "out/nodes.parquet").set_index("node_id")
    kernels = nodes[nodes["node_type"].astype(str) == "compute"]
    assert dict(zip(kernels.index, zip(kernels["source"], kernels["reason"], strict=True), strict=True)) == {
        TABLED: ("measured", "measured"),
        LIKE: ("gnn", "alike in training"),
        NEW_OP: ("gnn_calibrated", "op not in the vocabulary"),
        HUGE: ("gnn", "alike in training"),  # of a program that training has
        NAMELESS: ("uncovered", "op not in the vocabulary, and the analytical model has no prediction"),
    }
    assert kernels.loc[TABLED, "latency_us"] == pytest.approx(30.0)
    assert NAMELESS in kernels.index[kernels["latency_us"].isna()]
    result = json.loads((tmp_path / "out/prediction.json").read_text())
    assert result["uncovered_ops"] == {"mine::secret": 1}


def _checkpoint(folder: Path, device: str = DEVICE) -> Path:
    """The network that doubles the base, as if it were trained on the device."""
    made = doubling()
    save_checkpoint(folder / "model.ckpt", replace(made, trust=replace(made.trust, devices=(device,))))
    return folder / "model.ckpt"
