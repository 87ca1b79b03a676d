"""Front matter of README.md: what each folder holds, in words of the hub."""

from pathlib import Path

import pandas as pd
import pytest
import yaml

from research.recording.data_card import BLOCK, front_matter, with_front_matter

DATASETS = sorted(Path("datasets").glob("*/README.md"))


@pytest.mark.parametrize("path", DATASETS, ids=lambda path: path.parent.name)
def test_every_data_set_has_the_card_of_what_it_holds(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == with_front_matter(text, path.parent)
    match = BLOCK.match(text)
    assert match is not None and text[match.end() :].startswith("# ")
    card = yaml.safe_load(match[0].strip().strip("-"))
    assert card["task_categories"][0] == "tabular-regression"
    for config in card["configs"]:
        assert [list(path.parent.glob(one["path"])) != [] for one in config["data_files"]] == [True]
    assert card["license"] == ("apache-2.0" if card["configs"] else "other")


@pytest.mark.parametrize(("rows", "size"), [(999, "n<1K"), (1000, "1K<n<10K"), (250_000, "100K<n<1M")])
def test_sizes_are_those_of_rows(rows: int, size: str, tmp_path: Path) -> None:
    pd.DataFrame({"a": range(rows)}).to_parquet(tmp_path / "ops.parquet")
    assert f"size_categories:\n- {size}\n" in front_matter(tmp_path)
    assert with_front_matter(with_front_matter("# a\n", tmp_path), tmp_path).count("---\n") == 2
