"""What training had, from toys of a few nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from synthetic import prepared
from toys import make_graph

from gnnperf.core.schema.ranges import checked
from gnnperf.gnn.data.normalizer import Normalizer
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.models.message_passing import ModelConfig
from gnnperf.gnn.trust import (
    Corrections,
    OodDistance,
    Trust,
    fit_corrections,
    fit_ood_distance,
    fit_seen,
    fit_trust,
    plain_trust,
)
from gnnperf.gnn.trust.trust import NAMES, Missed, out_of_range

FLOPS, TEXT = WORK_NAMES.index("log_flops"), WORK_NAMES.index("text_0")


def _kernels(*rows: dict[str, object]) -> pd.DataFrame:
    return make_graph([{"node_type": "compute", **row} for row in rows], []).nodes


def test_distance_outside_the_range_counts_in_spreads() -> None:
    one = torch.ones(len(WORK_NAMES))
    scale = torch.where(torch.arange(len(WORK_NAMES)) == FLOPS, 2.0, torch.inf)
    normalizer = Normalizer({"compute": 0 * one}, {"compute": scale}, {"compute": 0 * one}, {"compute": one})
    x = torch.zeros(4, len(WORK_NAMES))
    x[1, FLOPS], x[2, TEXT] = 5.0, 9.0  # a number of the name is none of the op's sizes
    x[3, WORK_NAMES.index("log_bytes")] = -0.3  # constant in training: a tenth counts as its spread
    distance, place = out_of_range(normalizer, "compute", x)
    assert distance.tolist() == pytest.approx([0.0, 2.0, 0.0, 3.0])
    assert [NAMES[int(place[i])] for i in (1, 3)] == ["log_flops", "log_bytes"]


def test_a_dtype_is_seen_on_a_device() -> None:
    seen = fit_seen([("cpu", _kernels({"dtype": "float32", "latency_us": 1.0}, {"dtype": "bool"}))])
    nodes = _kernels({"dtype": "float32"}, {"dtype": "bool"}, {"dtype": None})
    assert seen.unseen("compute", nodes, "cpu").tolist() == [False, True, False]  # bool was never measured
    assert seen.unseen("compute", nodes, "gpu").tolist() == [True, True, False]
    assert not seen.knows("gpu")


def test_several_devices_tell_of_another_one() -> None:
    both = [(device, _kernels({"dtype": "float32", "latency_us": 1.0})) for device in ("a", "b")]
    nodes = _kernels({"dtype": "float32"}, {"dtype": "bfloat16"})
    assert fit_seen(both).unseen("compute", nodes, "c").tolist() == [False, True]


def test_corrections_count_ops_and_stay_where_they_help() -> None:
    rows: list[dict[str, object]] = [{"op_name": name, "family": "gemm"} for name in ("a", "a", "a", "b")]
    gemms = _kernels(*rows)
    missed = np.array([0.2, 0.4, 0.6, 0.8])  # medians by op: 0.4 and 0.8; 2 ops of 2 + 3
    result = fit_corrections([Missed("cpu", gemms, missed)], [Missed("cpu", gemms, missed)])
    assert result.log == {"cpu | compute | gemm": pytest.approx(0.6 * 2 / 5)}
    others = _kernels({"family": "gemm"}, {"family": "conv"})
    assert result.of(others, "cpu").tolist() == pytest.approx([0.24, 0.0])
    assert result.of(others, "gpu").tolist() == [0.0, 0.0]
    assert fit_corrections([Missed("cpu", gemms, missed)], [Missed("cpu", gemms, -missed)]) == Corrections({})


def test_ood_distance_is_the_distance_to_the_nearest_state_of_training() -> None:
    train = [{"host": torch.tensor([[1.0, 0.0], [0.0, 2.0]]), "memory": torch.zeros(0, 2)}]
    val = [{"host": torch.tensor([[1.0, 1.0]]), "memory": torch.zeros(0, 2)}]
    ood_distance = fit_ood_distance(train, val)
    usual = float(np.sqrt(2 - np.sqrt(2)))  # from (1, 1) to (1, 0), both of length 1
    assert ood_distance.usual["host"] == pytest.approx(usual)
    far = ood_distance.unlike("host", torch.tensor([[5.0, 0.0], [-1.0, 0.0]]))
    assert far.tolist() == pytest.approx([0.0, np.sqrt(2) / usual], abs=1e-3)
    assert ood_distance.unlike("memory", torch.zeros(1, 2)).tolist() == [np.inf]  # training had none


def test_it_is_plain_and_comes_back(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    network = TypedGNN(ModelConfig(hidden_channels=8), data.vocabulary).eval()
    trust = fit_trust(network, data)
    path = tmp_path / "trust.pt"
    torch.save(trust.to_plain(), path)
    back = checked(plain_trust(torch.load(path, weights_only=True)), Trust)
    assert (back.seen, back.corrections, back.transferability) == (trust.seen, trust.corrections, trust.transferability)
    for one, two in ((back.own, trust.own), (back.around, trust.around)):
        assert isinstance(one, OodDistance)
        assert torch.equal(one.states["host"], two.states["host"])
        assert one.usual == two.usual
    assert trust.seen.dtypes["v100"]["compute"] == ("float32",)
