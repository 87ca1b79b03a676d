"""`jitter=`: its words, and what it does to an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnperf.core.errors import InputError
from gnnperf.hardware import load_device
from gnnperf.predict.api import predict
from gnnperf.predict.jitter import check_jitter, requested_jitter
from gnnperf.predict.request import Mode, Request
from gnnperf.schedule.jitter import Jitter, Spread
from tests.generate.transformer.plans import small
from tests.predict.answers import toy_answer

RECORDED = Path("datasets/cpu-gloo/gpt_l2_w128_s64_b4_fsdp_x2_1g/1")


def test_numbers_are_read_by_part() -> None:
    graph = toy_answer().prediction.graph
    assert requested_jitter({"host": {"rank_share": 0.02, "moment_us": 5}}, graph) == Jitter(Spread(0.02, 5.0))
    assert requested_jitter(None, graph) is None


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("much", "bad value 'much'.*trace, or"),
        ({}, "bad value {}"),
        ({"gpu": {}}, "unknown setting 'gpu'.*host, device"),
        ({"host": {"share": 1}}, "unknown setting 'share'.*rank_share, moment_us"),
        ({"host": {"rank_share": "a"}}, "jitter.host.rank_share: bad value 'a'"),
        ({"host": 0.1}, "jitter.host: bad value 0.1"),
        ({"device": {"rank_share": 2.0}}, "rank_share of jitter"),
    ],
)
def test_one_clear_message(raw: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_jitter(raw)


def test_a_plan_with_jitter_takes_longer_and_states_so() -> None:
    device = load_device("a100_sxm_80gb")
    without = predict(Request(plan=small(2, 1, 4), hardware=device))
    with_it = predict(Request(plan=small(2, 1, 4), hardware=device, jitter={"host": {"rank_share": 0.05}}))
    assert with_it.step_time_us > without.step_time_us
    assert any(sentence.startswith("Jitter: ") for sentence in with_it.notes)
    assert not any(sentence.startswith("Jitter: ") for sentence in without.notes)


def test_a_plan_cannot_tell_and_replay_knows_better() -> None:
    with pytest.raises(InputError, match="do not show how ranks differ"):
        predict(Request(plan=small(), hardware=load_device("a100_sxm_80gb"), jitter="trace"))
    with pytest.raises(InputError, match="jitter: has no use in mode=replay"):
        predict(Request(trace=RECORDED, mode=Mode.replay, jitter="trace"))


def test_a_recording_reports() -> None:
    without = predict(Request(trace=RECORDED, mode=Mode.analytic, step=1))
    with_it = predict(Request(trace=RECORDED, mode=Mode.analytic, step=1, jitter="trace"))
    assert without.step_time_us < with_it.step_time_us < 2 * without.step_time_us
