from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from torch import nn

from gnnperf.record.launch import launch
from research.recording.workloads.cnn import Bottleneck, Cnn, Layout, ResNet
from tests.research.recording.workloads.cnn_checks import FORMS, train

Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    folder = tmp_path_factory.mktemp("trained")
    launch(train, (folder,), world_size=2, timeout_s=240)
    return [json.loads((folder / f"rank_{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("form", FORMS)
def test_it_learns_and_ranks_agree(ranks: Ranks, form: str) -> None:
    assert ranks[0][form]["weights"] == ranks[1][form]["weights"] != []
    assert ranks[0][form]["losses"] != ranks[1][form]["losses"]  # each has its own data
    for rank in ranks:
        assert len(rank[form]["gradients"]) == len(rank[form]["weights"])
        assert rank[form]["losses"][8] < rank[form]["losses"][0]  # four batches take turns


@pytest.mark.parametrize("form", ["blocking", "repeats", "repeating_rank"])
def test_interventions_leave_loss_and_gradients(ranks: Ranks, form: str) -> None:
    for rank in ranks:
        assert rank[form]["losses"][0] == rank["plain"]["losses"][0]
        assert rank[form]["gradients"] == pytest.approx(rank["plain"]["gradients"], rel=1e-5)


def test_only_the_last_rank_is_uneven(ranks: Ranks) -> None:
    same = [rank["uneven"]["losses"][0] == rank["plain"]["losses"][0] for rank in ranks]
    assert same == [True, False]


def test_what_needs_cuda_is_refused(ranks: Ranks) -> None:
    assert [message.split(":")[0] for message in ranks[0]["refused"]] == ["compile", "cuda_graph"]


def test_bottlenecks_widen_fourfold() -> None:
    model = ResNet(Cnn(blocks=2, channels=8, layout=Layout.BOTTLENECK), 1)
    blocks = [block for block in model.blocks if isinstance(block, Bottleneck)]
    kernels = [[part.kernel_size[0] for part in block.convolutions if isinstance(part, nn.Conv2d)] for block in blocks]
    assert kernels == [[1, 3, 1]] * 6
    assert [block.channels for block in blocks] == [32, 32, 64, 64, 128, 128]
    assert model.output.in_features == 128


def test_every_field_shows_in_the_name() -> None:
    base = Cnn()
    assert base.name == "resnet_n1_c16_i32_b16"
    changed = Cnn(blocks=2, channels=8, image=24, batch=4, bucket_mb=0.5, layout=Layout.BOTTLENECK,
                  precision="bfloat16", accumulation=2, repeats=3, repeating_rank=1, uneven=1.5, blocking=True,
                  compile=True, cuda_graph=True)  # fmt: skip
    names = {replace(base, **{f.name: getattr(changed, f.name)}).name for f in fields(Cnn)}
    assert len(names | {base.name}) == len(fields(Cnn)) + 1
