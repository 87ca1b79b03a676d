"""What becomes of suspects: judged by their edits, sorted by gain, dropped where nothing is to be gained."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.whatif.declared import ScaleNodes
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.findings import Observed, Suspect, Way, find
from gnnperf.whatif.findings.communication import length_us, outside_us, union
from gnnperf.whatif.findings.search import LEAST_GAIN, Rule
from tests.whatif.findings.steps import Steps


@dataclass(frozen=True)
class Refuses:
    """An edit for which no graph has a place."""

    def __call__(self, graph: ExecutionGraph) -> Edited:
        raise InputError("no place for it")


def _rule(name: str, *ways: Way, unpriced: str = "") -> Rule:
    def rule(step: Observed) -> Sequence[Suspect]:
        return [Suspect(name, "a cause", ("evidence",), "a remedy", ways, unpriced)]

    return rule


def _faster(share: float, text: str = "faster") -> Way:
    """The step of one op of 100 us takes this share."""
    return Way((ScaleNodes((0,), (share,)),), text)


@pytest.fixture(name="step")
def _step() -> Observed:
    step = Steps()
    step.work(100.0)
    return step.observed()


def test_largest_gain_first_and_unknown_gains_last(step: Observed) -> None:
    rules = (_rule("none", unpriced="nobody says"), _rule("small", _faster(0.9)), _rule("large", _faster(0.2)))
    result = find(step, rules)
    assert [one.rule for one in result] == ["large", "small", "none"]
    assert [one.gain_us for one in result] == pytest.approx([80.0, 10.0, None])
    assert [one.gain_share for one in result] == pytest.approx([0.8, 0.1, None])
    assert result[2].unknown == ("nobody says",)


def test_what_gains_next_to_nothing_is_no_finding(step: Observed) -> None:
    assert find(step, (_rule("least", _faster(1.0 - LEAST_GAIN)),)) != ()
    assert find(step, (_rule("less", _faster(1.001 - LEAST_GAIN)),)) == ()
    assert find(step, (_rule("longer", _faster(2.0)),)) == ()


def test_the_first_way_that_gains_is_taken(step: Observed) -> None:
    ways = (Way((Refuses(),), "refused"), _faster(1.0, "nothing"), _faster(0.5, "half"), _faster(0.1, "more"))
    (result,) = find(step, (_rule("some", *ways),))
    assert (result.edit, result.gain_us) == ("half", 50.0)


def test_where_every_way_is_refused_the_gain_is_unknown_and_stated_why(step: Observed) -> None:
    (result,) = find(step, (_rule("some", Way((Refuses(),), "this edit")),))
    assert (result.gain_us, result.unknown) == (None, ("this edit: no place for it",))


def test_an_edit_whose_latencies_no_one_reports_is_refused() -> None:
    """A chain of elementwise ops fuses into an op of other bytes; without a predictor nothing knows its latency."""
    step = Steps()
    for _ in range(2):
        step.call(1.0, 100.0, op_name="aten::relu", family="elementwise", dtype="float32", input_dims="[[10,10]]",
                  flops=100.0, bytes=800.0)  # fmt: skip
    (result,) = find(step.observed())
    assert result.rule == "unfused_chains"
    assert result.gain_us is None
    assert "no source has the latency of aten::relu" in result.unknown[0]


def test_a_step_without_anything_has_no_findings() -> None:
    step = Steps()
    step.work(100.0)
    assert find(step.observed()) == ()


def spans(*pairs: tuple[float, float]) -> np.ndarray:
    return np.array(pairs, dtype=float).reshape(-1, 2)


def test_union_by_hand() -> None:
    assert union(spans((5, 7), (0, 2), (1, 3), (3, 4), (9, 9))).tolist() == [[0, 4], [5, 7]]
    assert union(spans((0, 10), (1, 2), (3, 4))).tolist() == [[0, 10]]  # inside
    assert len(union(spans())) == 0


def test_outside_by_hand() -> None:
    assert outside_us(spans((0, 10)), spans((2, 3), (8, 12))) == 7.0
    assert outside_us(spans(), spans((0, 1))) == 0.0


pairs = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted), max_size=8)


@given(pairs, pairs)
def test_as_a_set_of_whole_microseconds(one: list[list[int]], other: list[list[int]]) -> None:
    a, b = ({at for low, high in result for at in range(low, high)} for result in (one, other))
    first, second = (np.array(result, dtype=float).reshape(-1, 2) for result in (one, other))
    assert length_us(first) == pytest.approx(len(a))
    assert outside_us(first, second) == pytest.approx(len(a - b))
