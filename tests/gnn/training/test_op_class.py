"""Hidden op names: nothing that tells them is left, everything else stays, and the error is that of the hidden ones."""

from __future__ import annotations

import math

import pytest
import torch
from synthetic import prepared

from gnnperf.gnn.data.module import batch_of
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.data.vocabulary import FIELDS, UNKNOWN
from gnnperf.gnn.models.gnn import WORK
from gnnperf.gnn.training.module import HiddenOps, OpHider, op_class_error

OP, FAMILY, PHASE = (FIELDS.index(f) for f in ("op_name", "family", "phase"))
TEXT = [n.startswith("text_") for n in WORK_NAMES]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepared(tmp_path_factory.mktemp("cache"))


def hidden_ops(data: PreparedData, share: float) -> HiddenOps:
    torch.manual_seed(0)
    batch = batch_of([s.data for s in data.steps["train"]])
    return OpHider(data.vocabulary, share)(batch)


def test_a_hidden_name_is_gone_from_every_node_that_has_it(data: PreparedData) -> None:
    result = hidden_ops(data, 0.5)
    whole = batch_of([s.data for s in data.steps["train"]])
    both = set()
    for node_type in WORK:
        hidden, left = result.hidden[node_type], result.batch[node_type]
        assert (left.codes[hidden][:, [OP, FAMILY]] == UNKNOWN).all()
        assert (left.x[hidden][:, TEXT] == 0).all()
        assert torch.equal(left.codes[:, PHASE], whole[node_type].codes[:, PHASE])
        assert torch.equal(left.x[:, [not t for t in TEXT]], whole[node_type].x[:, [not t for t in TEXT]])
        assert torch.equal(left.codes[~hidden], whole[node_type].codes[~hidden])
        assert torch.equal(result.op[node_type], whole[node_type].codes[:, OP])
        both |= set(hidden.tolist())
    assert both == {True, False}
    gemm = result.hidden["compute"].view(4, 2)  # per graph: the gemms of both ranks
    launch = result.hidden["host"].view(4, 2, 4)[:, :, 0]  # and the host time of the same op before them
    assert torch.equal(gemm, launch)
    assert torch.equal(gemm[:, 0], gemm[:, 1])
    assert 0 < gemm[:, 0].sum() < 4  # drawn for each graph


def test_the_batch_itself_stays(data: PreparedData) -> None:
    batch = batch_of([s.data for s in data.steps["train"]])
    codes, x = batch["host"].codes.clone(), batch["host"].x.clone()
    OpHider(data.vocabulary, 0.9)(batch)
    assert torch.equal(batch["host"].codes, codes)
    assert torch.equal(batch["host"].x, x)


def test_the_error_by_hand() -> None:
    """Two classes, equal logits: log 2 for each hidden node, whatever the others say."""
    empty = {t: torch.zeros(0, dtype=torch.bool) for t in WORK}
    hidden = {**empty, "host": torch.tensor([True, False, True])}
    ops = {**{t: torch.zeros(0, dtype=torch.int64) for t in WORK}, "host": torch.tensor([1, 1, 0])}
    logits = {**{t: torch.zeros(0, 2) for t in WORK}, "host": torch.tensor([[0.0, 0.0], [9.0, -9.0], [0.0, 0.0]])}
    assert op_class_error(logits, HiddenOps(None, hidden, ops)).item() == pytest.approx(math.log(2))  # type: ignore[arg-type]
    none = {**empty, "host": torch.tensor([False] * 3)}
    assert op_class_error(logits, HiddenOps(None, none, ops)).item() == 0.0  # type: ignore[arg-type]


def test_words_are_one_space_over_node_types(data: PreparedData) -> None:
    hider = OpHider(data.vocabulary, 0.5)
    words = {t: data.vocabulary.words[t]["op_name"] for t in WORK}
    of_mm = {int(hider.name[t][words[t].index("aten::mm") + 1]) for t in WORK if "aten::mm" in words[t]}
    assert len(of_mm) == 1
    assert all(int(hider.name[t][UNKNOWN]) == 0 for t in WORK)


def test_an_unknown_op_has_no_name_to_hide(data: PreparedData) -> None:
    batch = batch_of([s.data for s in data.steps["train"]])
    batch["compute"].codes = torch.zeros_like(batch["compute"].codes)
    assert not OpHider(data.vocabulary, 0.99)(batch).hidden["compute"].any()
