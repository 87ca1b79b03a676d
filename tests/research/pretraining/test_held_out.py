"""Which share is kept: what held-out rows say, with a margin."""

from __future__ import annotations

import numpy as np
import pandas as pd

from research.pretraining.held_out import (
    SHARES,
    HeldOut,
    bucket_of,
    choose,
    judged_generations,
    others_share,
    own_share,
)
from research.pretraining.rows import KINDS, PRODUCTS

KIND = PRODUCTS.name


def held(forms: float, half: float, whole: float, device: str = "t4", generation: str = "turing") -> HeldOut:
    """Errors of the shares 0, 0.5 and 1; those between are bad."""
    errors = {share: np.array([9.0]) for share in SHARES}
    return HeldOut(KIND, device, generation, errors | {0.0: np.array([forms]), 0.5: np.array([half]),
                                                       1.0: np.array([whole])})  # fmt: skip


def test_the_least_error_over_devices_is_retained() -> None:
    assert own_share([held(0.2, 0.1, 0.15), held(0.2, 0.1, 0.01, "p4", "pascal")]) == 1.0
    assert own_share([held(0.2, 0.1, 0.15)]) == 0.5


def test_what_helps_by_less_than_the_margin_is_chance() -> None:
    assert own_share([held(0.1, 0.0985, 0.2)]) == 0.0
    assert own_share([held(0.1, 0.0975, 0.2)]) == 0.5
    assert own_share([]) == 0.0


def test_no_generation_may_be_worse() -> None:
    helped = held(0.2, 0.15, 0.05)
    assert others_share([helped, held(0.1, 0.1, 0.11, "p4", "pascal")]) == 0.5
    assert others_share([helped, held(0.1, 0.11, 0.11, "p4", "pascal")]) == 0.0


def test_one_generation_reports_nothing_of_others() -> None:
    assert others_share([held(0.2, 0.1, 0.05)]) == 0.0


def test_a_generation_is_judged_by_what_the_others_choose() -> None:
    first, second = held(0.2, 0.1, 0.05), held(0.2, 0.1, 0.05, "p4", "pascal")
    third = held(0.2, 0.1, 0.9, "v100_pcie_32gb", "volta")
    shares = {one.generation: share for one, share in judged_generations([first, second, third])}
    assert shares == {"turing": 0.5, "pascal": 0.5, "volta": 1.0}


def test_a_device_that_does_not_gain_keeps_the_closed_form() -> None:
    generations = [held(0.2, 0.1, 0.15), held(0.2, 0.1, 0.15, "p4", "pascal")]
    answers = choose([held(0.2, 0.1, 0.01), held(0.2, 0.3, 0.25, "p4", "pascal")], generations)
    result = {one.kind: one for one in answers}
    assert set(result) == {kind.name for kind in KINDS}
    assert (result[KIND].own_share, result[KIND].devices, result[KIND].others_share) == (1.0, ("t4",), 0.5)


def test_what_no_generation_confirms_is_the_campaigns() -> None:
    refuted = [held(0.2, 0.3, 0.3), held(0.2, 0.1, 0.1, "p4", "pascal")]
    result = {one.kind: one for one in choose([held(0.2, 0.1, 0.01)], refuted)}
    assert (result[KIND].own_share, result[KIND].devices, result[KIND].others_share) == (0.0, (), 0.0)


def test_weights_fall_into_the_same_bucket_on_every_device() -> None:
    rows = pd.DataFrame({"kind": KIND, "n": [64.0, 64.0, 128.0], "k": [32.0] * 3, "in_channels": np.nan,
                         "out_channels": np.nan, "kernel": np.nan, "m": [1.0, 2.0, 3.0]})  # fmt: skip
    bucket = bucket_of(rows)
    assert bucket[0] == bucket[1]
    assert ((bucket >= 0) & (bucket < 5)).all()
