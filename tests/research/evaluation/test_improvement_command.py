"""`gnnperf improvement` on a folder of made-up cells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnperf.cli import main
from tests.research.evaluation.made_records import folder_of, made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """gnn beats analytic on size and loses on link; pooled has no node predictions; a floor."""
    worse, better = (0.3, 0.5, 0.9), (0.05, 0.1, 0.2)
    return folder_of(
        tmp_path / "cells",
        *(made(seed=s, split=split) for s in (0, 1) for split in ("size", "link")),
        made("analytic", worse, seed=None), made("analytic", better, seed=None, split="link"),
        made("pooled", worse, nodes=False),
        made("another-recording", better, seed=None, data="f"),
    )  # fmt: skip


def test_all_rows_with_verdicts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["improvement", str(folder), "--of", "gnn", "--json", str(tmp_path / "out" / "found.json")]) == 0
    sentences = capsys.readouterr().out
    assert "over analytic, node GMAE: P >= 0.75 on 1 of 2 splits; lost: link" in sentences
    assert "over pooled, step geomean: P >= 0.75 on 1 of 1 splits; lost: none" in sentences
    result = json.loads((tmp_path / "out" / "found.json").read_text())
    by_key = {(r["over"], r["split"], r["metric"]): r for r in result["comparisons"]}
    assert {over for over, _, _ in by_key} == {"analytic", "pooled"}  # no floor
    assert ("pooled", "size", "node GMAE") not in by_key
    won = by_key["analytic", "size", "step geomean"]
    assert (won["probability"], won["low"], won["verdict"]) == (1.0, 1.0, "significant and meaningful")
    assert (won["seeds"], won["seeds_over"], won["runs"]) == (2, 1, 3)
    assert won["error"] == pytest.approx((0.1 * 0.2 * 0.4) ** (1 / 3))
    assert by_key["analytic", "link", "node GMAE"]["verdict"] == "lost beyond noise"
