"""Which closed form a row has, and constants that know what they were fitted on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from op_rows import A100, V100, add_rows, product_rows

from gnnperf.analytic.gemm import tiled_us
from gnnperf.analytic.gemm_fit import measured
from gnnperf.analytic.kernel_constants import default_gemm_constants, members_for
from gnnperf.analytic.memory_constants import default_memory_constants
from gnnperf.analytic.memory_fit import device_us
from gnnperf.errors import InputError
from gnnperf.pretrain.forms import CONVOLUTION, PRODUCT, STREAM, FormConstants, base_us, families, form_names
from gnnperf.pretrain.rows import spec_of
from gnnperf.tables.columns import completed
from gnnperf.tables.shapes import shapes_json

SHIPPED = FormConstants(default_gemm_constants(), default_memory_constants(), (A100, V100))


def _convolution() -> pd.DataFrame:
    """8 images of 64 channels and 32 x 32 pixels, 3 x 3 windows to 64 channels."""
    sizes = {"batch": 8.0, "in_channels": 64.0, "out_channels": 64.0, "kernel": 3.0, "in_size": 32.0, "stride": 1.0,
             "padding": 1.0}  # fmt: skip
    how = {"op": "aten::conv2d", "dtype": "float32", "direction": "forward", "cache": "warm", "launch_included": True,
           "device": A100, "latency_us": 200.0, "source": "toys", "table": "conv", "method": "by hand",
           "shapes": shapes_json([[8, 64, 32, 32], [64, 64, 3, 3]])}  # fmt: skip
    return completed({**sizes, **how}, 1)


def test_forms_by_sizes() -> None:
    rows = pd.concat([product_rows((A100,)), add_rows(), _convolution()], ignore_index=True)
    assert form_names(rows).tolist() == [PRODUCT] * 6 + [STREAM] * 3 + [CONVOLUTION]


def test_what_no_constant_was_fitted_for_has_no_form() -> None:
    assert set(form_names(add_rows().assign(direction="backward"))) == {""}
    assert set(form_names(add_rows().assign(dtype="float16"))) == {""}
    assert set(form_names(product_rows().assign(tf32=True))) == {""}


def test_families_of_products() -> None:
    rows = product_rows((A100,))
    assert set(families(rows)) == {"vector"}
    assert set(families(rows.assign(op="aten::bmm"))) == {"vector_batched"}
    assert set(families(rows.assign(dtype="bfloat16"))) == {"matrix"}


def test_the_base_is_the_closed_form_without_the_launch() -> None:
    rows = pd.concat([product_rows((A100, V100)), add_rows()], ignore_index=True)
    found = base_us(rows, SHIPPED)
    for first, architecture in ((0, "ampere"), (6, "volta")):  # each by the kernels that run there, as in prediction
        data = measured(rows.iloc[first : first + 6])
        members = members_for(SHIPPED.gemm["vector"], architecture)
        assert len(members) == 1
        assert found[first : first + 6] == pytest.approx(tiled_us(data.found, data.numbers, members, False))
    assert SHIPPED.memory is not None
    assert found[12:] == pytest.approx(device_us(rows.iloc[12:], "add", spec_of(A100), SHIPPED.memory))
    assert np.isfinite(base_us(_convolution(), SHIPPED)).all()


def test_a_form_without_constants_is_refused() -> None:
    with pytest.raises(InputError, match="stream op aten::add"):
        base_us(add_rows(), FormConstants(SHIPPED.gemm, None, ()))
    with pytest.raises(InputError, match="product op aten::linear"):
        base_us(product_rows(), FormConstants({}, SHIPPED.memory, ()))
