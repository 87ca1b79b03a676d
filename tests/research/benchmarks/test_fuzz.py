"""The fuzzer: cases repeat, failures and hangs are noted and kept, workers that die lose one case."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gnnperf.core import InputError, reading
from research.benchmarks.fuzz import run as fuzz
from research.benchmarks.fuzz.targets import TARGETS

CARD = TARGETS["card"]


def _always() -> float:
    return time.monotonic() + 60.0


@pytest.mark.parametrize("reader", [name for name in TARGETS if name != "checkpoint"])
def test_the_same_case_has_the_same_bytes_and_another_differs(reader: str) -> None:
    first = [fuzz.case_bytes(reader, number, 0)[0] for number in range(8)]
    assert [fuzz.case_bytes(reader, number, 0)[0] for number in range(8)] == first
    assert len(set(first)) > 4
    assert [fuzz.case_bytes(reader, number, 1)[0] for number in range(8)] != first


def _refusing(path: Path) -> None:
    raise InputError("no", where=str(path))


def _broken(path: Path) -> None:
    raise KeyError("planted")


def _dying(path: Path) -> None:
    os._exit(7)


def _hanging(path: Path) -> None:
    with reading(path):  # which turns every Exception into a refusal
        while True:
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("read", "refused", "failure"),
    [(_refusing, 3, ""), (_broken, 0, "KeyError"), (_dying, 0, "exit code 7"), (_hanging, 0, "hang")],
)
def test_every_case_is_counted_however_it_ends(
    read: Callable[[Path], None], refused: int, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TARGETS, "card", replace(CARD, read=read))
    monkeypatch.setattr(fuzz, "LIMIT_S", 0.2)
    tally = fuzz.run_reader("card", range(3), 0, _always())
    assert (tally.cases, tally.accepted, tally.refused) == (3, 0, refused)
    assert len(tally.failures) == 3 - refused and all(failure in how for how in tally.failures.values())


def test_a_failed_case_is_retained_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    retained = fuzz.keep("card:5", 3, "KeyError", tmp_path)
    assert (retained / "run.json").read_bytes() == fuzz.case_bytes("card", 5, 3)[0]
    assert "python -m research.benchmarks.fuzz --seed 3 --case card:5" in (retained / "failure.txt").read_text()


@pytest.mark.parametrize("reader", TARGETS)
def test_shipped_readers_accept_or_refuse_every_case(reader: str) -> None:
    cases = range(40 if reader == "checkpoint" else 100)
    tally = fuzz.run_reader(reader, cases, 0, _always())
    assert (tally.failures, tally.accepted + tally.refused) == ({}, len(cases))
    assert tally.refused
