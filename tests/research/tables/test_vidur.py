from __future__ import annotations

from pathlib import Path

import pandas as pd

from research.tables import read_vidur
from research.tables.vidur import FOLDER

SIZES = {"n_head": 4, "n_kv_head": 2, "n_embd": 16, "n_expanded_embd": 24, "vocab_size": 64,
         "num_tokens": 5, "num_tensor_parallel_workers": 2}  # fmt: skip


def _rows(mirror: Path, gated: bool, **medians: float) -> pd.DataFrame:
    path = mirror / FOLDER / "h100" / "org" / "model" / "mlp.csv"
    path.parent.mkdir(parents=True)
    measured = {f"time_stats.{op}.median": ms for op, ms in medians.items()}
    pd.DataFrame([{**SIZES, "use_gated_mlp": gated, **measured}]).to_csv(path, index=False)
    return read_vidur(mirror).rows.set_index("table")


def test_products_of_a_layer_are_divided_by_the_tensor_parallel_ways(tmp_path: Path) -> None:
    rows = _rows(tmp_path, True, attn_pre_proj=0.1, attn_post_proj=0.2, mlp_up_proj=0.3, mlp_down_proj=0.4)
    assert rows["m"].tolist() == [5] * 4
    assert rows["n"].to_dict() == {"attn_pre_proj": 16, "attn_post_proj": 16, "mlp_up_proj": 24, "mlp_down_proj": 16}
    assert rows["k"].to_dict() == {"attn_pre_proj": 16, "attn_post_proj": 8, "mlp_up_proj": 16, "mlp_down_proj": 12}
    assert rows["latency_us"].tolist() == [100.0, 200.0, 300.0, 400.0]


def test_an_mlp_without_a_gate_is_half_as_wide_and_has_another_activation(tmp_path: Path) -> None:
    rows = _rows(tmp_path, False, mlp_up_proj=0.3, mlp_act=0.1)
    assert rows.loc["mlp_up_proj", "n"] == 12 and rows.loc["mlp_act", "op"] == "aten::gelu"
    assert rows.loc["mlp_act", "moved_bytes"] == 2 * 5 * 12 * 2


def test_the_mirror_names_devices_of_the_catalog(mirror: Path) -> None:
    rows = read_vidur(mirror).rows
    assert set(rows["device"]) == {"NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"}
    products = rows[rows["k"].notna()]
    assert (products["flops"] / products["latency_us"] * 1e6).max() < 989.4e12
