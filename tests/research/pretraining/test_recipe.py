"""The recipe of a checkpoint of op tables, on made-up tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from gnnperf.core.errors import InputError
from gnnperf.gnn.training.pretrain_config import OpTablesConfig
from gnnperf.trace.public.catalog import load_catalog
from research.pretraining import held_out, recipe
from research.pretraining.forms import FormConstants, shipped_forms
from research.pretraining.recipe import card, of_kinds, trained_checkpoint
from research.pretraining.rows import CONVOLUTIONS, PRODUCTS, kind_names, sources, usable
from tests.research.op_networks import CONFIG
from tests.research.op_rows import A100, T4, V100, product_rows, table

SHORT = replace(CONFIG, steps=2)


def rows(devices: tuple[str, ...]) -> pd.DataFrame:
    return product_rows(devices, us=900.0).assign(source=PRODUCTS.source, table=PRODUCTS.table)


def test_from_tables_to_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[set[str]] = []  # GPUs that constants were fitted on, fold by fold

    def fitted(part: pd.DataFrame, folder: Path) -> FormConstants:
        left.append(set(part["device"]))
        return shipped_forms()

    monkeypatch.setattr(recipe, "read_sources", lambda mirror: table(rows((A100, V100, T4))))
    monkeypatch.setattr(held_out, "retained_forms", fitted)
    result = trained_checkpoint(OpTablesConfig(str(tmp_path), SHORT, SHORT), 0)
    given = result.provenance
    assert {one["kind"] for one in given["rows"]} == {PRODUCTS.name}
    assert {one["generation"] for one in given["generations"]} == {"ampere", "volta", "turing"}
    assert left == [{V100, T4}, {A100, V100}, {A100, T4}]  # without ampere, turing, volta
    assert [source["license"] for source in given["sources"]] == ["Apache-2.0", "MIT"]
    assert result.answer_of(CONVOLUTIONS.name).own_share == 0  # no rows tell of it
    assert "## Errors on generations" in card(result)


def test_rows_of_other_tables_do_not_train() -> None:
    other = product_rows((T4,)).assign(latency_us=7.0)
    result = of_kinds(usable(table(rows((V100,)), other)), 100)
    assert set(result["device"]) == {V100}


def test_convolutions_of_gpus_with_tf32_are_of_no_kind() -> None:
    given = {"source": CONVOLUTIONS.source, "table": CONVOLUTIONS.table, "dtype": "float32"}
    result = kind_names(pd.DataFrame([{**given, "device": A100}, {**given, "device": V100}]))
    assert result.tolist() == ["", CONVOLUTIONS.name]


def test_a_source_with_more_than_a_plain_license_is_refused() -> None:
    entries = [replace(e, license=f"{e.license}; in an unmerged branch") for e in load_catalog()]
    with pytest.raises(InputError, match="unmerged branch"):
        sources(entries)
