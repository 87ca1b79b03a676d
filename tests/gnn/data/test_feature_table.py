"""docs/features.md is what the code says."""

from __future__ import annotations

from pathlib import Path

from gnnperf.core.schema import DEVICE_FEATURES, LINK_FEATURES, WORK_FEATURES, names
from gnnperf.gnn.data.feature_table import feature_page
from gnnperf.gnn.data.vocabulary import FIELDS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "features.md"


def test_the_page_in_the_repository_is_made_from_the_code() -> None:
    remedy = "python -m gnnperf.gnn.data.feature_table > docs/features.md"
    assert PAGE.read_text() == feature_page(), remedy


def test_every_feature_has_a_row_with_its_meaning() -> None:
    rows = [line.split(" | ") for line in feature_page().splitlines() if line.startswith("| `")]
    wanted = [*names(WORK_FEATURES), "text_0` to `text_31", *FIELDS, *names(DEVICE_FEATURES), *names(LINK_FEATURES)]
    assert [row[0].removeprefix("| ").strip("`") for row in rows] == wanted
    assert all(len(row) == 3 and row[2].removesuffix(" |").strip() for row in rows)
