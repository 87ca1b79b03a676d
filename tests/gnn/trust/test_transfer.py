"""How far corrections carry, from toys of a few kernels."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.gnn.trust import Transferability, fit_transferability
from gnnperf.gnn.trust.transferability import UNTOLD, Work


def _work(program: str, ops: str, base_us: float | list[float], log: float | list[float]) -> Work:
    names = np.array(list(ops), dtype=object)
    return Work(program, names, np.full(len(names), base_us, float), np.full(len(names), log, float))


def _steps(long: tuple[float, float]) -> list[Work]:
    """Two programs with sixteen ops in common: short kernels take twice as long in both, long ones as given."""
    ops = "abcdefghijklmnop"
    short = [_work(program, ops, 2.0, np.log(2.0)) for program in ("one", "two")]
    return [*short, *(_work(program, ops, 500.0, log) for program, log in zip(("one", "two"), long, strict=True))]


def test_overhead_transfers_and_what_differs_from_program_to_program_does_not() -> None:
    transferability = fit_transferability(_steps(long=(0.3, -0.3)))
    assert transferability.programs == {"one": tuple("abcdefghijklmnop"), "two": tuple("abcdefghijklmnop")}
    weight = transferability.weight(np.array(["x", "y"], dtype=object), np.array([2.0, 500.0]))  # of a third program
    assert weight.tolist() == pytest.approx([1.0, 0.0])


def test_what_programs_agree_on_is_believed_of_long_kernels_too() -> None:
    transferability = fit_transferability(_steps(long=(0.3, 0.3)))
    assert transferability.weight(np.array(["x", "y"], dtype=object), np.array([2.0, 500.0])).tolist() == pytest.approx(
        [1.0, 1.0]
    )


def test_a_longer_kernel_is_believed_no_more_than_a_shorter_one() -> None:
    short_differs = [Work(one.program, one.op, 500.0 / one.base_us, one.log) for one in _steps(long=(0.3, -0.3))]
    transferability = fit_transferability(short_differs)  # 1 us differs, 250 us agrees: one share for both
    assert len(set(transferability.share)) == 1


def test_noise_isolated_makes_no_curve_that_falls() -> None:
    draw = np.random.default_rng(0)
    lengths = np.repeat(4.0 ** np.arange(1, 9), 16).tolist()
    steps = [_work(name, "abcdefghijklmnop" * 8, lengths, (0.3 + 0.2 * draw.standard_normal(128)).tolist())
             for name in ("one", "two", "three")]  # fmt: skip
    share = fit_transferability(steps).share
    assert min(share) > 0.6 * max(share)


def test_a_program_of_training_is_believed_and_one_that_is_much_like_it_in_part() -> None:
    transferability = Transferability({"one": tuple("abcdefghi"), "two": ("a", "z")}, (0.0,), (0.2,))
    ops = np.array(list("abcdefghi"), dtype=object)
    assert transferability.known(ops) == 1.0
    assert transferability.weight(ops, np.full(9, 7.0)).tolist() == [1.0] * 9
    nine_of_ten = np.array(list("abcdefghiz"), dtype=object)  # no program has all, though each op is known
    assert transferability.known(nine_of_ten) == pytest.approx(0.9)
    assert transferability.weight(nine_of_ten, np.full(10, 7.0)).tolist() == pytest.approx([1 / 2 + 1 / 2 * 0.2] * 10)
    assert (
        transferability.known(np.array(list("abcde+"), dtype=object)) == 1.0
    )  # an op that nothing has makes no other program
    assert transferability.known(np.array(["a", *map(str, range(50))], dtype=object)) == pytest.approx(
        2 / 51
    )  # most do
    assert transferability.known(np.array(["+"], dtype=object)) == 0.0


def test_without_two_programs_half_is_believed_of_another() -> None:
    transferability = fit_transferability([_work("one", "abcdefgh", 2.0, 0.7)])
    assert transferability.weight(np.array(["z"], dtype=object), np.array([2.0])).tolist() == [UNTOLD]
    assert transferability.weight(np.array(["a"], dtype=object), np.array([2.0])).tolist() == [1.0]


def test_without_kernels_nothing_is_requested() -> None:
    transferability = fit_transferability([_work("one", "", 0.0, 0.0)])
    assert transferability.weight(np.zeros(0, dtype=object), np.zeros(0)).tolist() == []


@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_runs_without_a_name_are_one_program_if_their_ops_are(order: tuple[int, ...]) -> None:
    runs = [
        _work("", "abc", 2.0, 0.1),
        _work("", "xyz", 2.0, 0.1),
        _work("", "ab", 2.0, 0.1),
        _work("mine", "pq", 2.0, 0.1),
    ]
    transferability = fit_transferability([*(runs[place] for place in order), _work("", "p", 2.0, 0.1)])
    assert sorted(transferability.programs.values()) == [("a", "b", "c"), ("p", "q"), ("x", "y", "z")]


def test_kernels_without_a_measurement_or_a_base_tell_nothing() -> None:
    known = _steps(long=(0.3, -0.3))
    gaps = [_work("one", "ab", 5.0, np.nan), _work("two", "ab", 0.0, 1.0)]
    assert fit_transferability([*known, *gaps]).share == fit_transferability(known).share


@given(st.lists(st.floats(1e-2, 1e6), min_size=1, max_size=6), st.sampled_from(["a", "z", "az"]))
def test_a_weight_is_a_share(base_us: list[float], ops: str) -> None:
    transferability = fit_transferability(_steps(long=(0.3, -0.3)))
    names = np.resize(np.array(list(ops), dtype=object), len(base_us))
    weight = transferability.weight(names, np.array(base_us))
    assert ((weight >= 0) & (weight <= 1)).all()
