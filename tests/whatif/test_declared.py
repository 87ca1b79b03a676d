"""Declared latencies on the loop of two ranks.

Rank 1 arrives after 5 + 14 + 5 us, the transfer takes 30; backward ends at 51; 3 + 5 + 1 come after both: 63.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from gnnperf.core.errors import InputError
from gnnperf.whatif import Edit, InputStall, OpLatency, Straggler, apply
from gnnperf.whatif.edit import on_recording
from research.evaluation.step_times import step_times_us
from tests.whatif.loops import loop


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (OpLatency("aten::mm", factor=2.0), 77.0),
        (OpLatency("aten::mm", factor=2.0, rank=0), 69.0),  # rank 0 arrives last, after 5 + 20 + 5
        (OpLatency("aten::mm", us=4.0), 53.0),
        (OpLatency("aten::bw", factor=0.0, phase="backward"), 63.0),  # next to the transfer
        (OpLatency("all_reduce", factor=2.0), 93.0),
        (OpLatency("c10d::allreduce_", us=10.0), 60.0),  # the transfer ends at 34, backward at 51
        (Straggler(1, 2.0), 120.0),  # backward ends at 102, the transfer at 78
        (Straggler(1, 2.0, "device"), 99.0),  # backward ends at 85
        (Straggler(1, 2.0, "host"), 81.0),  # backward ends at 68, the transfer at 64
        (Straggler(1, 1.0), 63.0),
        (InputStall(4.0), 67.0),
        (InputStall(4.0, rank=0), 63.0),  # rank 0 then arrives when rank 1 does
        (InputStall(9.0, rank=0), 68.0),
    ],
)
def test_by_hand(edit: Edit, expected: float) -> None:
    result = apply(loop(), [edit])
    assert step_times_us(on_recording(result)) == pytest.approx([expected, expected])
    assert result.touched.any()


def test_a_predictor_is_reported_what_is_declared() -> None:
    edited = apply(loop(1), [OpLatency("aten::mm", us=7.0), Straggler(0, 3.0), InputStall(2.0, rank=0)])
    values = np.full(edited.graph.num_nodes, np.nan)
    values[0] = 1.0
    result = edited.latency_change.of(values)
    assert result[0] == 1.0 * 3.0 + 2.0  # the first gap of rank 0: slower, then the stall
    assert result[1] == 7.0 * 3.0
    assert np.isnan(result[2])  # nothing given it


def test_a_later_declaration_replaces_an_earlier_factor() -> None:
    both = [OpLatency("aten::mm", factor=5.0), OpLatency("aten::mm", us=4.0)]
    assert step_times_us(on_recording(apply(loop(), both))) == pytest.approx([53.0, 53.0])
    assert step_times_us(on_recording(apply(loop(), both[::-1]))) == pytest.approx([69.0, 69.0])


@given(st.floats(0.1, 10.0), st.floats(0.0, 100.0), st.integers(0, 1))
def test_stalls_and_factors_commute(factor: float, us: float, rank: int) -> None:
    edits: list[Edit] = [Straggler(rank, factor), InputStall(us), OpLatency("aten::bw", factor=factor)]
    one, other = (on_recording(apply(loop(1), order)).nodes["latency_us"] for order in (edits, edits[::-1]))
    np.testing.assert_allclose(one, other)


@given(st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_factors_compose(first: float, second: float) -> None:
    two = apply(loop(1), [Straggler(1, first), Straggler(1, second)])
    one = apply(loop(1), [Straggler(1, first * second)])
    np.testing.assert_allclose(on_recording(two).nodes["latency_us"], on_recording(one).nodes["latency_us"])


def test_identities_change_nothing() -> None:
    graph = loop()
    same = apply(graph, [Straggler(0, 1.0), InputStall(0.0), OpLatency("aten::mm", factor=1.0)])
    assert_frame_equal(on_recording(same).nodes, graph.nodes)
    assert_frame_equal(same.graph.edges, graph.edges)


def test_a_straggler_names_what_it_cannot_know() -> None:
    assert any("transfers" in sentence for sentence in Straggler(0, 2.0)(loop()).unknown)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (OpLatency("mm", factor=2.0), "e.g. aten::mm"),
        (OpLatency("aten::nn", factor=2.0), "aten::mm"),
        (OpLatency("aten::mm", factor=2.0, phase="backward"), "phase backward"),
        (OpLatency("aten::mm", factor=2.0, rank=3), "rank 3"),
        (Straggler(3, 2.0), "rank 0, 1"),
        (InputStall(2.0, rank=3), "rank 3 is not in the graph"),
    ],
)
def test_no_place(edit: Edit, message: str) -> None:
    with pytest.raises(InputError, match=message):
        edit(loop())


def test_bad_settings() -> None:
    for make in (
        lambda: OpLatency("aten::mm"),
        lambda: OpLatency("aten::mm", factor=1.0, us=1.0),
        lambda: OpLatency("aten::mm", factor=-1.0),
        lambda: Straggler(0, 0.0),
        lambda: Straggler(0, 1.0, "gpu"),
        lambda: InputStall(-1.0),
    ):
        with pytest.raises(InputError, match="bad value"):
            make()
