"""A few products of a new GPU: constants that they change, and rows that change nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from research.pretraining.encode import encode, words_of
from research.pretraining.few_rows import Requested, learn_from, refitted
from research.pretraining.forms import base_us, shipped_forms
from research.pretraining.observation import Observation, Wait
from research.tables.columns import completed, product_columns
from tests.research.op_rows import A100, add_rows

EDGES = [64, 128, 256, 512, 1024, 2048, 4096]
SHIPPED = shipped_forms()


def _rows(factor: float = 1.0, *, launch: bool = False) -> pd.DataFrame:
    """49 products of an A100 that take `factor` times as long as the closed form says."""
    m, k = (edges.ravel() for edges in np.meshgrid(EDGES, EDGES))
    rows = completed(
        {**product_columns("aten::linear", m, 512, k, "float32"), "direction": "forward", "cache": "warm",
         "launch_included": launch, "device": A100, "latency_us": 1.0, "source": "toys", "table": "linear",
         "method": "by hand"}, len(m),
    )  # fmt: skip
    return rows.assign(latency_us=factor * base_us(rows, SHIPPED))


def _requested(rows: pd.DataFrame) -> Requested:
    encoded = encode(rows, words_of(rows), SHIPPED, Observation({}, {}))
    return Requested(rows, encoded, torch.zeros(len(rows), dtype=torch.float64))


def test_constants_that_a_gpu_shows_answer_for_rows_that_were_not_measured() -> None:
    every = _requested(_rows(2.0))
    few, rest = every.part(np.arange(0, 49, 3)), every.part(np.arange(1, 49, 3))
    result = learn_from(few, every.encoded, SHIPPED, seed=0)
    truth = rest.encoded.log_label.numpy()
    assert result.refitted is not None
    assert np.abs(rest.log_us() - truth).mean() == pytest.approx(np.log(2.0))
    assert np.abs(result.refitted.log_us(rest) - truth).mean() < 0.5 * np.log(2.0)
    assert np.abs(result.log_us(rest) - truth).mean() < 0.5 * np.log(2.0)


def test_rows_that_are_met_already_or_too_few_change_nothing() -> None:
    every = _requested(_rows())
    met = learn_from(every.part(np.arange(0, 49, 3)), every.encoded, SHIPPED, seed=0)
    assert met.refitted is None
    assert met.log_us(every) == pytest.approx(every.log_us())
    slow = _requested(_rows(2.0))
    few = learn_from(slow.part(np.arange(8)), slow.encoded, SHIPPED, seed=0)
    assert (few.refitted, few.learned.reach) == (None, None)
    assert np.array_equal(few.log_us(slow), slow.log_us())


def test_only_the_family_of_the_rows_is_fitted() -> None:
    result = refitted(_requested(_rows(2.0)), SHIPPED).constants
    assert {name for name in SHIPPED.gemm if result.gemm[name] != SHIPPED.gemm[name]} == {"vector"}
    assert [member.kernels for member in result.gemm["vector"]] == ["ampere"]


def test_no_answer_is_moved_further_than_one_that_was_measured() -> None:
    """Rows that take twice as long pull all answers up; none may go beyond theirs, nor is one that they leave moved."""
    every = _requested(_rows(2.0))
    few = every.part(np.arange(0, 49, 3))
    result = refitted(few, SHIPPED)
    free = every.log_us(result.constants) - every.log_us()
    assert (result.least, result.most) == (0.0, pytest.approx(free[::3].max()))
    narrow = replace(result, least=-0.1, most=0.2).log_us(every) - every.log_us()
    assert narrow == pytest.approx(np.full(49, 0.2))
    assert free.min() > 0.5  # without the bound


def test_where_a_launch_is_measured_its_wait_is_fitted_with_the_constants() -> None:
    rows = _rows(launch=True)
    late = _requested(rows.assign(latency_us=np.hypot(rows["latency_us"], 300.0)))
    result = learn_from(late, late.encoded, SHIPPED, seed=0)
    assert result.refitted is not None
    smallest = late.part(np.arange(1))
    assert np.exp(result.refitted.log_us(smallest))[0] == pytest.approx(300.0, rel=0.3)


def test_a_few_rows_tell_how_slow_the_host_is() -> None:
    """Additions behind a typical wait of 20 us, half of it before the kernel, where the host takes twice that."""
    edges = [float(64 * 2 ** (i // 2)) for i in range(20)]
    every = add_rows(rows=edges, us=[1.0] * 20)
    waits = Observation({("toys", "add"): Wait(20.0, 0.5, 8.0)}, {})
    slow = waits.of(every).paced(2.0).log_us(torch.from_numpy(base_us(every, SHIPPED)).log()).exp().numpy()
    encoded = encode(every.assign(latency_us=slow), words_of(every), SHIPPED, waits)
    requested = Requested(every, encoded, torch.zeros(20, dtype=torch.float64))
    result = learn_from(requested, encoded, SHIPPED, seed=0)
    assert (result.refitted, result.machine_scale) == (None, 2.0)
    assert np.exp(result.log_us(requested)) == pytest.approx(slow)
    assert learn_from(requested.part(np.arange(8)), encoded, SHIPPED, seed=0).machine_scale == 1.0
