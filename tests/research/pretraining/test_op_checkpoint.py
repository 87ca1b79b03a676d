"""Checkpoints of op tables: what is kept, who answers where, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnperf.core.errors import InputError
from gnnperf.hardware import load_device
from research.pretraining.op_checkpoint import load_op_checkpoint, save_op_checkpoint
from research.pretraining.predictor import corrections
from research.pretraining.rows import PRODUCTS
from tests.research.op_networks import SHARE, call, checkpoint, small_rows

V100, T4, CPU = (load_device(name) for name in ("v100_pcie_32gb", "t4", "cpu_generic"))
BIG = 4096


def test_a_checkpoint_survives_its_file_to_the_bit(tmp_path: Path) -> None:
    saved = save_op_checkpoint(tmp_path / "one.pt", checkpoint())
    again = save_op_checkpoint(tmp_path / "two.pt", checkpoint())
    assert saved.sha256 == again.sha256
    loaded = load_op_checkpoint(tmp_path / "one.pt")
    assert (loaded.sha256, loaded.answers, loaded.provenance) == (saved.sha256, saved.answers, saved.provenance)
    us = np.array([5000.0])
    given, before = (corrections(one, [call(BIG)], us, V100).log_factor for one in (loaded, saved))
    assert np.array_equal(given, before)
    assert given[0] != 0


def test_an_own_gpu_is_corrected_by_the_share() -> None:
    whole = replace(checkpoint(), answers=(replace(checkpoint().answers[0], own_share=1.0),))
    us = np.array([5000.0])
    part, full = (corrections(one, [call(BIG)], us, V100).log_factor[0] for one in (checkpoint(), whole))
    assert part == pytest.approx(SHARE * full)


def test_another_gpu_or_another_clock_keeps_the_closed_form() -> None:
    us = np.array([5000.0])
    for device in (T4, CPU, replace(V100, clock_hz=1.2e9), load_device("mi300x")):
        result = corrections(checkpoint(), [call(BIG)], us, device)
        assert not result.answered.any()
        assert not result.log_factor.any()


def test_a_share_for_others_answers_on_a_gpu_that_no_catalog_has() -> None:
    answer = replace(checkpoint().answers[0], others_share=0.5)
    mine = replace(T4, name="mine", aliases=(), num_sms=50)
    result = corrections(replace(checkpoint(), answers=(answer,)), [call(BIG)], np.array([5000.0]), mine)
    assert result.answered.all()


def test_behind_the_wait_for_a_launch_nothing_was_learned() -> None:
    result = corrections(checkpoint(), [call(BIG), call(64)], np.array([5000.0, 3.0]), V100)
    assert result.answered.all()
    assert abs(result.log_factor[1]) < 0.1 * abs(result.log_factor[0])


def test_unknown_bases_are_not_answered() -> None:
    assert not corrections(checkpoint(), [call(BIG)], np.array([np.nan]), V100).answered.any()


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.pt"
    torch.save({"format": "gnnperf checkpoint"}, path)
    with pytest.raises(InputError, match="not a gnnperf op checkpoint"):
        load_op_checkpoint(path)
    torch.save({"format": "gnnperf op checkpoint", "schema_version": 0}, path)
    with pytest.raises(InputError, match="schema version 0"):
        load_op_checkpoint(path)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("answers", 0, {"kind": "k", "devices": [], "own_share": 2.0, "others_share": 0.0}),
        ("own", "waits", [["s", "t", math.nan, 0.0, 1.0, 0.0]]),
        ("own", "wait_shares", [["s", "d", "t"]]),
        ("others", "model", {"hidden_channels": 2**40}),
        ("others", "weights", {}),
        ("others", "vocabulary", {}),
    ],
)
def test_a_part_of_another_kind_or_range_is_refused(tmp_path: Path, part: str, name: Any, value: object) -> None:
    path = tmp_path / "one.pt"
    save_op_checkpoint(path, checkpoint())
    plain = torch.load(path, weights_only=True)
    plain[part][name] = value
    torch.save(plain, path)
    with pytest.raises(InputError, match="damaged"):
        load_op_checkpoint(path)


def test_rows_of_tests_are_of_a_kind() -> None:
    assert set(small_rows()["kind"]) == {PRODUCTS.name}
