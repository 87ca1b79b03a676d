"""Which rows train, which closed form a row has, and constants that know what they were fitted on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gnnperf.analytic.convolution.calls import convolutions_us
from gnnperf.analytic.convolution.model import default_convolution_constants
from gnnperf.analytic.gemm.constants import default_gemm_constants, members_for
from gnnperf.analytic.gemm.model import tiled_us
from gnnperf.analytic.kernels.call import KernelCall, Setting
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from research.fitting import forms
from research.fitting.forms import GENERATION, NO_DEVICE, NO_FORM, sampled, usable
from research.fitting.forms import retained_forms as keep
from research.fitting.gemm import measured
from research.fitting.memory import device_us
from research.tables import spec_of
from tests.research.op_rows import A100, T4, V100, add_rows, convolution_rows, product_rows, table

SHIPPED = replace(forms.shipped_forms(), devices=(A100, V100))


def test_forms_by_sizes() -> None:
    rows = pd.concat([product_rows((A100,)), add_rows(), convolution_rows()], ignore_index=True)
    assert forms.form_names(rows).tolist() == [forms.PRODUCT] * 6 + [forms.STREAM] * 3 + [forms.CONVOLUTION]


def test_what_no_constant_was_fitted_for_has_no_form() -> None:
    assert set(forms.form_names(add_rows().assign(direction="backward"))) == {""}
    assert set(forms.form_names(add_rows().assign(dtype="float16"))) == {""}
    assert set(forms.form_names(product_rows().assign(tf32=True))) == {""}


def test_the_base_is_the_closed_form_without_the_launch() -> None:
    rows = pd.concat([product_rows((A100, V100)), add_rows()], ignore_index=True)
    result = forms.base_us(rows, SHIPPED)
    for first, architecture in ((0, "ampere"), (6, "volta")):  # each by the kernels that run there, as in prediction
        data = measured(rows.iloc[first : first + 6])
        members = members_for(SHIPPED.gemm["vector"], architecture)
        assert len(members) == 1
        assert result[first : first + 6] == pytest.approx(tiled_us(data.result, data.numbers, members, False))
    assert SHIPPED.memory is not None
    assert result[12:] == pytest.approx(device_us(rows.iloc[12:], "add", spec_of(A100), SHIPPED.memory))


def test_the_base_of_a_convolution_is_what_traces_of_that_gpu_are_reported() -> None:
    shapes, flops = convolution_rows()["shapes"].iloc[0], 2.0 * 8 * 64 * 32 * 32 * 64 * 9
    call = KernelCall("aten::conv2d", shapes, "float32", "conv", flops, 1.0)
    constants = default_memory_constants(), default_gemm_constants(), default_convolution_constants()
    setting = Setting(spec_of(V100), *constants)
    assert forms.base_us(convolution_rows().assign(device=V100), SHIPPED) == pytest.approx(
        convolutions_us([call], setting)
    )


def test_convolutions_are_fitted_where_products_and_streams_are() -> None:
    several = pd.concat([convolution_rows().assign(device=d, in_channels=c, calls_before=float(c), latency_us=200.0 + c)
                         for d in (A100, V100) for c in (16.0, 32.0, 64.0)], ignore_index=True)  # fmt: skip
    given = usable(table(several)).rows
    assert forms.fit_forms(given).convolution is None  # without products on lanes there is nothing to stand on
    with_others = forms.fit_forms(usable(table(product_rows((A100, V100)), add_rows(), several)).rows)
    assert with_others.convolution is not None
    waits = with_others.convolution.call_us + with_others.convolution.growth_us * given["calls_before"]
    assert forms.base_us(given, with_others) + waits.to_numpy() == pytest.approx(
        given["latency_us"].to_numpy(), rel=0.1
    )


def test_constants_are_fitted_once_and_come_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The constants that ship have every kind of field: memories, generations, gaps."""
    requested = []

    def fitted(rows: object) -> forms.FormConstants:
        requested.append(rows)
        return forms.shipped_forms()

    rows = usable(table(product_rows((A100, V100)), add_rows())).rows
    monkeypatch.setattr(forms, "fit_forms", fitted)
    monkeypatch.setattr(forms, "getsource", lambda _: "of the test")
    first, again = keep(rows, tmp_path), keep(rows, tmp_path)
    assert len(requested) == 1
    assert first == again
    assert again.gemm == forms.shipped_forms().gemm
    assert again.memory == default_memory_constants()
    assert again.convolution == default_convolution_constants()


def test_generations_come_from_the_catalog() -> None:
    rows = usable(table(product_rows((A100, T4)))).rows
    assert rows.groupby("device")[GENERATION].first().to_dict() == {A100: "ampere", T4: "turing"}


def test_what_cannot_train_is_counted() -> None:
    unknown = product_rows((V100,)).assign(device="Voodoo 2")
    backward = add_rows().assign(direction="backward")
    result = usable(table(product_rows((V100,)), unknown, backward))
    assert len(result.rows) == 6
    assert result.dropped == {f"toys: {NO_DEVICE}": 6, f"toys: {NO_FORM}": 3}


def test_samples_are_of_every_group_and_repeat() -> None:
    rows = product_rows((A100, V100))
    places = sampled(rows, 2, ["device"], seed=3)
    assert rows["device"].iloc[places].value_counts().to_dict() == {A100: 2, V100: 2}
    assert np.array_equal(places, sampled(rows, 2, ["device"], seed=3))
    assert np.array_equal(sampled(rows, 99, ["device"], seed=0), np.arange(len(rows)))
