"""The checkpoint that ships: whole, small, of licensed sources, for the constants that ship with it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.analytic.kernels.dispatch import kernel_times
from gnnperf.core.errors import InputError
from gnnperf.gnn.pretrain.answer import corrections
from gnnperf.gnn.pretrain.card import FILE, card
from gnnperf.gnn.pretrain.kinds import CONVOLUTIONS, KINDS
from gnnperf.gnn.pretrain.op_checkpoint import KindAnswer, OpCheckpoint, load_op_checkpoint
from gnnperf.gnn.pretrain.recipe import constants_sha256
from gnnperf.gnn.pretrain.sources import PLAIN_LICENSES, sources
from gnnperf.hardware import device_names, load_device
from gnnperf.predict.pretrained import SHIPPED
from gnnperf.trace.public.catalog import load_catalog

MOST_BYTES = 5 * 2**20
AGAIN = "train again: python train.py experiment=pretrained"


@cache
def shipped() -> OpCheckpoint:
    return load_op_checkpoint(SHIPPED)


def test_it_is_small_and_says_of_every_kind_where_it_answers() -> None:
    assert SHIPPED.stat().st_size <= MOST_BYTES
    assert {one.kind for one in shipped().answers} == {kind.name for kind in KINDS}
    assert all(set(one.devices) <= set(device_names()) for one in shipped().answers)
    assert all(bool(one.devices) == (one.own_share > 0) for one in shipped().answers)


def test_it_corrects_the_constants_that_ship() -> None:
    assert shipped().provenance["constants_sha256"] == constants_sha256(), AGAIN


def test_the_card_is_the_checkpoints() -> None:
    assert (SHIPPED.parent / FILE).read_text(encoding="utf-8") == card(shipped()), AGAIN


def test_its_sources_have_plain_licenses() -> None:
    told = {source["repo"]: source["license"] for source in shipped().provenance["sources"]}
    assert told == {source.repo: source.license for source in sources()}
    assert set(told.values()) <= set(PLAIN_LICENSES)


def test_a_source_with_more_than_a_plain_license_is_refused() -> None:
    entries = [replace(e, license=f"{e.license}; in an unmerged branch") for e in load_catalog()]
    with pytest.raises(InputError, match="unmerged branch"):
        sources(entries)


def test_held_out_rows_say_that_it_helps_where_it_answers_and_that_it_learned_elsewhere_too() -> None:
    lines = shipped().provenance["sizes"]
    assert all(line["network mean"] < line["forms mean"] for line in lines if line["kept"])
    assert {line["kind"] for line in lines if line["kept"]} == {a.kind for a in shipped().answers if a.own_share > 0}
    means = pd.DataFrame(lines).groupby("kind")[["network mean", "forms mean"]].mean()
    assert (means["network mean"] < 0.8 * means["forms mean"]).all()  # of sizes, though not of other campaigns


def test_more_work_takes_longer_by_far() -> None:
    """Corrections are not monotone, but with twice the channels there is four times the work; asked by sizes alone."""
    device = load_device("v100_pcie_32gb")
    asked = replace(shipped(), answers=(KindAnswer(CONVOLUTIONS.name, (device.name,), 1.0, 0.0),))
    calls = [
        KernelCall("aten::cudnn_convolution", f"[[32, {c}, 28, 28], [{c}, {c}, 3, 3]]", "float32", "conv",
                   2.0 * 32 * 28**2 * c**2 * 9, 8.0 * 32 * c * 28**2)
        for c in (32, 64, 128, 256, 512)
    ]  # fmt: skip
    base = kernel_times(calls, device, 4.0).latency_us
    found = corrections(asked, calls, base, device)
    assert found.answered.all()
    assert (np.diff(np.log(base) + found.log_factor) > 0).all()
    assert (np.abs(found.log_factor) < 1.0).all()
