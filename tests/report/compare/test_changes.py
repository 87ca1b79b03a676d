"""The parts of a change add up to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.core.schema import StepTimeKind
from gnnperf.report.compare import Change, Side, compare
from gnnperf.report.compare.changes import OTHERS, REST, UNNAMED, leading
from gnnperf.report.compare.text import Limits

Row = tuple[str, str | None, str, float, float]  # node type, op, phase, latency, time on the critical path


def side(rows: list[Row], step_time_us: float | None = None, kind: StepTimeKind = StepTimeKind.MAKESPAN) -> Side:
    """A step of these nodes; by default it takes as long as its critical path."""
    nodes = pd.DataFrame(rows, columns=["node_type", "op_name", "phase", "latency_us", "critical_us"])
    time_us = float(nodes["critical_us"].sum()) if step_time_us is None else step_time_us
    return Side("out", "toy", "analytic", "v100", time_us, kind, False, nodes)


A: list[Row] = [
    ("compute", "aten::mm", "forward", 100.0, 100.0),
    ("compute", "aten::mm", "backward", 200.0, 0.0),
    ("collective", "all_reduce", "backward", 80.0, 80.0),
    ("host", None, "other", 20.0, 20.0),
]
B: list[Row] = [
    ("compute", "aten::mm", "forward", 60.0, 60.0),
    ("compute", "aten::mm", "backward", 300.0, 70.0),
    ("collective", "all_reduce", "backward", 80.0, 50.0),
    ("memory", "aten::copy_", "other", 5.0, 5.0),
]


def test_parts_by_hand() -> None:
    """A: 200 us, B: 185 us. mm 100 -> 130, all_reduce 80 -> 50, no op 20 -> 0, copy_ 0 -> 5."""
    result = compare(side(A), side(B))
    assert (result.change_us, result.change_share) == (-15.0, -0.075)
    assert result.changes["op"] == (
        Change("aten::mm", 100.0, 130.0, 300.0, 360.0, 2, 2),
        Change("all_reduce", 80.0, 50.0, 80.0, 80.0, 1, 1),
        Change(UNNAMED, 20.0, 0.0, 20.0, 0.0, 1, 0),
        Change("aten::copy_", 0.0, 5.0, 0.0, 5.0, 0, 1),
    )
    assert [(one.name, one.change_us) for one in result.changes["phase"]] == [
        ("backward", 40.0), ("forward", -40.0), ("other", -15.0),
    ]  # fmt: skip
    assert [one.name for one in result.changes["node type"]] == ["compute", "collective", "host", "memory"]


def test_what_the_path_does_not_pass_is_a_part() -> None:
    result = compare(side(A, 210.0), side(B))
    assert Change(REST, 10.0, 0.0) in result.changes["op"]
    assert all(sum(one.change_us for one in parts) == pytest.approx(-25.0) for parts in result.changes.values())


def test_nodes_without_a_latency_are_counted_and_add_nothing() -> None:
    missing: list[Row] = [("compute", "my::op", "forward", float("nan"), 0.0)]
    assert Change("my::op", 0.0, 0.0, 0.0, 0.0, 0, 1) in compare(side(A), side(A + missing)).changes["op"]


rows = st.lists(
    st.tuples(
        st.sampled_from(["host", "compute", "comm"]), st.sampled_from(["a", "b", "c", None]),
        st.sampled_from(["forward", "backward"]), st.floats(0, 1e6), st.floats(0, 1e6),
    ),
    max_size=6,
)  # fmt: skip


@given(rows, rows, st.floats(0, 1e6))
def test_parts_add_up_whatever_the_steps(a: list[Row], b: list[Row], more_us: float) -> None:
    one, other = side(a), side(b)
    other = replace(other, step_time_us=other.step_time_us + more_us)
    result = compare(one, other)
    for parts in result.changes.values():
        assert sum(part.change_us for part in parts) == pytest.approx(result.change_us, abs=1e-3)
        assert sum(part.a_us for part in parts) == pytest.approx(one.step_time_us, abs=1e-3)
        shown = leading(parts, 2)
        assert len(shown) <= 3
        assert sum(part.change_us for part in shown) == pytest.approx(result.change_us, abs=1e-3)


@given(rows, rows)
def test_the_other_way_round_everything_changes_its_sign(a: list[Row], b: list[Row]) -> None:
    one, other = side(a), side(b)
    there, back = compare(one, other).changes, compare(other, one).changes
    for by, parts in there.items():
        assert {p.name: p.change_us for p in parts} == {p.name: -p.change_us for p in back[by]}


def test_a_step_with_itself_has_not_changed() -> None:
    result = compare(side(A), side(A))
    assert result.change_us == 0.0
    assert all(part.change_us == 0.0 for parts in result.changes.values() for part in parts)


def test_the_smaller_parts_become_one() -> None:
    parts = compare(side(A), side(B)).changes["op"]
    assert leading(parts, 2)[2] == Change(f"{OTHERS}: 2", 20.0, 5.0, 20.0, 5.0, 1, 1)
    assert leading(parts, 4) == parts


def test_steps_of_two_kinds_are_not_compared() -> None:
    with pytest.raises(InputError, match=r"makespan, that of out a period.*--step"):
        compare(side(A), side(B, kind=StepTimeKind.PERIOD))


def test_share_of_an_empty_step_is_unknown() -> None:
    assert np.isnan(compare(side([]), side(A)).change_share)


def test_limits_hold_up_to_their_value() -> None:
    result = compare(side(A), side(A, 210.0))  # 200 -> 210 us
    assert Limits().exceeded(result) == ()
    assert Limits(max_step_ms=0.21, max_regression=5.0).exceeded(result) == ()
    sentences = Limits(max_step_ms=0.2, max_regression=4.9).exceeded(result)
    assert sentences == (
        "step B takes 210 us, more than 0.2 ms (--max-step-ms)",
        "step B is 5.0 % longer than step A, more than 4.9 % (--max-regression)",
    )
    assert Limits(max_regression=1000.0).exceeded(compare(side([]), side(A))) != ()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_no_limit_that_lets_everything_pass(value: float) -> None:
    with pytest.raises(InputError, match="--max-step-ms"):
        Limits(max_step_ms=value)
    with pytest.raises(InputError, match="--max-regression"):
        Limits(max_regression=value)
