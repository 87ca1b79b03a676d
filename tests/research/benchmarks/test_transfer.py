"""The benchmark of unseen GPUs on toy tables: trivial answers by hand, and both halves from rows to printed lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnnperf.gnn.models.message_passing import ModelConfig
from gnnperf.gnn.training.pretrain_config import PretrainConfig
from research.benchmarks import transfer
from research.benchmarks._transfer import Judged, nearest_op_us
from research.pretraining.rows import spec_of, usable
from tests.research.op_rows import A100, T4, V100, product_rows, table

WAYS = {
    ("gen", "other"): {("ratios", 0.0): 0.2, ("ratios", 0.5): 0.1},
    ("other", "gen"): {("ratios", 0.0): 0.2, ("ratios", 0.5): 0.3},
}


def test_the_nearest_gpu_is_scaled_by_peak() -> None:
    rows = product_rows((A100, V100, T4))
    one = Judged(T4, rows[rows["device"] == T4], rows.iloc[:0])
    ratio = spec_of(V100).flops_per_s["float32"] / spec_of(T4).flops_per_s["float32"]
    result = nearest_op_us(one, rows[rows["device"] != T4])
    assert result == pytest.approx(ratio * np.array([50.0, 100.0, 150.0, 200.0, 250.0, 300.0]))


def test_the_least_mean_error_is_chosen_and_of_equals_the_first() -> None:
    assert transfer.best_way(WAYS.values()) == ("ratios", 0.0)
    assert transfer.best_way([WAYS["gen", "other"]]) == ("ratios", 0.5)


def test_single_ops_from_tables_to_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = usable(table(product_rows((A100, V100, T4)))).rows
    monkeypatch.setattr(transfer, "KEPT", tmp_path)
    monkeypatch.setattr(transfer, "_ops_rows", lambda: rows)
    monkeypatch.setattr(transfer, "_gemm_inner", lambda: WAYS)
    monkeypatch.setattr(transfer, "CONFIG", PretrainConfig(ModelConfig(hidden_channels=4, num_layers=1), steps=2))
    monkeypatch.setattr(transfer, "OPS_ROWS", 4)
    monkeypatch.setattr(transfer, "SEEDS", (0,))
    transfer.ops()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"| {T4}, linear |")]
    answers = [line.split("|")[2].strip() for line in lines]
    assert answers == ["nearest GPU x peak", "closed forms", "network, seed 0", "same GPU, trees"]


def test_a_few_rows_from_tables_to_curves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = usable(table(product_rows((A100, V100, T4)))).rows
    monkeypatch.setattr(transfer, "KEPT", tmp_path)
    monkeypatch.setattr(transfer, "_ops_rows", lambda: rows)
    monkeypatch.setattr(transfer, "OPS_ROWS", 4)
    monkeypatch.setattr(transfer, "FEW", (2,))
    transfer.few()
    printed = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    answers = [records[2].strip() for records in printed if records[1].strip() == f"{T4}, linear"]
    assert answers == ["0 rows", "2 rows, seed 0", "2 rows, seed 1", "2 rows, seed 2", "same GPU, trees"]
    (curve,) = (records for records in printed if records[1].strip() == "linear")
    assert curve[2] == curve[3]  # two rows are too few to change anything
    assert curve[5].strip() == "0 of 9"
