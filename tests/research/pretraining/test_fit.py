"""Training on op tables: an untrained network answers the base, seeds repeat, what is dropped stays unseen."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch

from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.models.message_passing import ModelConfig
from gnnperf.gnn.training.config import PretrainConfig
from research.pretraining.encode import encode, fit_row_normalizer, words_of
from research.pretraining.fit import OTHERS, OWN, OpModel, Prepared, fit, prepare
from research.pretraining.forms import FormConstants, base_us, fit_forms
from research.pretraining.rows import usable
from tests.research.op_rows import A100, T4, V100, product_rows, table

CONFIG = PretrainConfig(ModelConfig(hidden_channels=8, num_layers=1), steps=60, rows_per_step=8)


@cache
def _prepared() -> tuple[pd.DataFrame, Prepared]:
    rows = usable(table(product_rows((A100, V100)))).rows
    return rows, prepare(rows, _constants(), CONFIG)


@cache
def _constants() -> FormConstants:
    return fit_forms(usable(table(product_rows((A100, V100)))).rows)


def test_the_base_knows_which_gpus_it_was_fitted_on() -> None:
    assert _constants().devices == tuple(sorted((A100, V100)))
    assert set(_constants().gemm) == {"vector"}


def test_an_untrained_network_answers_the_base_as_the_method_sees_it() -> None:
    rows, prepared = _prepared()
    model = fit(prepared, OTHERS, replace(CONFIG, steps=1, learning_rate=1e-12), seed=0)
    encoded = model.encode(rows)
    assert torch.allclose(model.residual(encoded), torch.zeros(len(rows), dtype=torch.float64), atol=1e-9)
    seen = encoded.observed.log_us(torch.from_numpy(np.log(base_us(rows, _constants()))))
    assert np.allclose(model.log_us(encoded), seen)


def test_training_lessens_the_error_and_repeats_to_the_bit() -> None:
    rows, prepared = _prepared()
    first, again = (fit(prepared, OTHERS, CONFIG, seed=1) for _ in range(2))
    encoded = first.encode(rows)
    assert np.array_equal(first.log_us(encoded), again.log_us(encoded))
    untrained = fit(prepared, OTHERS, replace(CONFIG, steps=1, learning_rate=1e-12), seed=1)  # answers the base
    assert _error(first, rows) < _error(untrained, rows)


def test_a_row_is_answered_alike_isolated_and_among_others() -> None:
    rows, prepared = _prepared()
    model = fit(prepared, OTHERS, CONFIG, seed=1)
    encoded = model.encode(rows)
    isolated = encoded.part(torch.tensor([3]))
    assert np.allclose(model.log_us(isolated), model.log_us(encoded)[3], atol=1e-6)


def test_a_gpu_that_no_one_trained_on_is_answered() -> None:
    _, prepared = _prepared()
    unseen = usable(table(product_rows((T4,)))).rows
    model = fit(prepared, OTHERS, CONFIG, seed=1)
    assert np.isfinite(model.log_us(model.encode(unseen))).all()


def test_every_device_and_op_weighs_the_same() -> None:
    rows = usable(table(product_rows((A100, V100)), product_rows((A100,)))).rows
    weight = prepare(rows, _constants(), CONFIG).weight
    assert torch.isclose(weight.mean(), torch.tensor(1.0))
    assert torch.allclose(
        weight[rows["device"].to_numpy() == A100].sum(), weight[rows["device"].to_numpy() == V100].sum()
    )


def test_what_a_view_drops_never_reaches_the_network() -> None:
    rows, prepared = _prepared()
    encoded = encode(rows, words_of(rows), _constants(), prepared.observation)
    normalizer = fit_row_normalizer(encoded, ("log_m", "log_num_sms"))
    seen = normalizer.apply(encoded.data())["compute"].x
    assert not seen[:, WORK_NAMES.index("log_m")].any()
    assert seen[:, WORK_NAMES.index("log_n")].any()


def _error(model: OpModel, rows: pd.DataFrame) -> float:
    return float(np.abs(model.log_us(model.encode(rows)) - np.log(rows["latency_us"])).mean())


@pytest.mark.parametrize("dropped", [OWN, OTHERS])
def test_networks_see_ratios_and_sizes(dropped: tuple[str, ...]) -> None:
    assert {"log_compute_us", "log_waves", "align_k", "log_m"} <= set(WORK_NAMES) - set(dropped)
