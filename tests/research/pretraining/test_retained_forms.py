"""Constants of a fold come back from their file as they were fitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnperf.analytic.convolution.model import default_convolution_constants
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from research.pretraining import retained_forms
from research.pretraining.forms import FormConstants, shipped_forms
from research.pretraining.retained_forms import retained_forms as keep
from research.pretraining.rows import usable
from tests.research.op_rows import A100, V100, add_rows, product_rows, table


def test_constants_are_fitted_once_and_come_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The constants that ship have every kind of field: memories, generations, gaps."""
    requested = []

    def fitted(rows: object) -> FormConstants:
        requested.append(rows)
        return shipped_forms()

    rows = usable(table(product_rows((A100, V100)), add_rows())).rows
    monkeypatch.setattr(retained_forms, "fit_forms", fitted)
    monkeypatch.setattr(retained_forms, "getsource", lambda _: "of the test")
    first, again = keep(rows, tmp_path), keep(rows, tmp_path)
    assert len(requested) == 1
    assert first == again
    assert again.gemm == shipped_forms().gemm
    assert again.memory == default_memory_constants()
    assert again.convolution == default_convolution_constants()
