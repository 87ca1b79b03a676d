"""The order of passes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.generate.transformer.passes import Pass, passes
from gnnperf.generate.transformer.plan import Pipeline
from tests.generate.transformer.plans import small


def _text(order: tuple[Pass, ...]) -> str:
    return " ".join(f"{'FB'[p.backward]}{p.micro_batch}" for p in order)


def test_one_forward_one_backward_by_hand() -> None:
    plan = small(pipeline=2, batch=3)
    assert _text(passes(plan, 0)) == "F0 F1 B0 F2 B1 B2"
    assert _text(passes(plan, 1)) == "F0 B0 F1 B1 F2 B2"


def test_gpipe_by_hand() -> None:
    assert _text(passes(small(pipeline=2, batch=3, order=Pipeline.GPIPE), 0)) == "F0 F1 F2 B2 B1 B0"


def test_fewer_micro_batches_than_stages() -> None:
    assert _text(passes(small(pipeline=4, batch=2), 0)) == "F0 F1 B0 B1"


@pytest.mark.parametrize("stage", [0, 1])
def test_interleaved_goes_through_both_chunks(stage: int) -> None:
    order = passes(small(pipeline=2, batch=2, order=Pipeline.INTERLEAVED, chunks=2), stage)
    assert [(p.micro_batch, p.chunk) for p in order if not p.backward] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [(p.micro_batch, p.chunk) for p in order if p.backward] == [(0, 1), (1, 1), (0, 0), (1, 0)]


@given(
    stages=st.sampled_from([1, 2, 4]),
    rounds=st.integers(1, 4),
    order=st.sampled_from([Pipeline.GPIPE, Pipeline.ONE_F_ONE_B]),
)
def test_every_micro_batch_passes_once_each_way_forward_first(stages: int, rounds: int, order: Pipeline) -> None:
    plan = small(pipeline=stages, batch=rounds * stages, order=order)
    for stage in range(stages):
        result = passes(plan, stage)
        assert len(result) == len(set(result)) == 2 * rounds * stages
        for micro_batch in range(rounds * stages):
            assert result.index(Pass(False, micro_batch)) < result.index(Pass(True, micro_batch))
