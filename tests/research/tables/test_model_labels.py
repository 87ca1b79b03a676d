from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from research.tables.model_labels import ROOT, node_times, peer_us, read_model_labels, run_of


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_a_name_states_what_was_run() -> None:
    run = run_of("gpt2_large-train-1024-4-dp4")
    assert (run.model, run.training, run.length, run.batch, run.variant) == ("gpt2_large", True, 1024, 4, "dp4")
    assert run_of("opt_13-inf-2048-2").variant == ""
    with pytest.raises(InputError, match="run 'opt'"):
        run_of("opt")


def test_labels_are_in_microseconds_and_zero_is_not_measured(tmp_path: Path) -> None:
    raw = {"num_layer": 0, "e2e_latency": 3.0, "fw_latency": 2.0, "bwall_latency": 0}
    _write(tmp_path / ROOT / "label" / "Tesla_T4" / "m-inf-8-1.json", json.dumps(raw))
    (label,) = read_model_labels(tmp_path)
    assert (label.device, label.total_us, label.forward_us) == ("Tesla T4", 3000.0, 2000.0)
    assert math.isnan(label.backward_us)
    assert math.isnan(peer_us(tmp_path, label, "neusight")) and node_times(tmp_path, label) is None


def test_peers_and_nodes_belong_to_a_label(tmp_path: Path) -> None:
    raw = {"e2e_latency": 3.0, "fw_latency": 2.0, "bwall_latency": 1.0}
    _write(tmp_path / ROOT / "label" / "Tesla_T4" / "m-train-8-1.json", json.dumps(raw))
    _write(tmp_path / ROOT / "label" / "Tesla_T4" / "m-train-8-1.csv",
           "Name,fw_latency,bw_latency,acc_latency\nadd,0.5,0.25,0.125\n")  # fmt: skip
    peers = tmp_path / ROOT / "results" / "prediction" / "Tesla_T4" / "micro"
    _write(peers / "m-train-8-1.json", json.dumps({"e2e_latency": 4.0}))
    (label,) = read_model_labels(tmp_path)
    assert peer_us(tmp_path, label, "micro") == 4000.0
    times = node_times(tmp_path, label)
    assert times is not None and times.loc["add"].tolist() == [500.0, 375.0]
