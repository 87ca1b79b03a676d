from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.splits import Split, read_split


def dataset(root: Path, splits: object) -> Path:
    for run in ("a", "b", "c", "g/1", "g/2"):
        (root / run).mkdir(parents=True)
    (root / "splits.json").write_text(splits if isinstance(splits, str) else json.dumps(splits))
    return root


def test_reads_an_axis(tmp_path: Path) -> None:
    root = dataset(tmp_path, {"size": {"train": ["a", "b"], "val": ["c"]}})
    split = read_split(root, "size")
    assert split == Split("size", ("a", "b"), ("c",), ())
    assert split.part("val") == ("c",)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"size": {"train": ["a"], "val": ["a"]}}, "run 'a' is in train and val"),
        ({"size": {"train": ["a", "a"], "val": ["b"]}}, "run 'a' is in train and train"),
        ({"size": {"train": ["a"], "val": ["z"]}}, "run 'z' is not a folder"),
        ({"size": {"train": [], "val": ["a"]}}, "part 'train' has no runs"),
        ({"size": {"train": ["a"], "val": []}}, "part 'val' has no runs"),
        ({"size": {"train": "a", "val": ["b"]}}, "part 'train' is not a list"),
        ({"size": ["a"]}, "part 'train' is not a list"),
        ({"link": {}}, "no split axis 'size'.*Allowed: link"),
        (["a"], "not an object"),
        ("{", "not JSON"),
        ("[" * 100_000, "nested deeper"),
        ({"size": {"train": ["../a"], "val": ["b"]}}, r"run '\.\./a' is not inside"),
        ({"size": {"train": ["/etc"], "val": ["b"]}}, "run '/etc' is not inside"),
        ({"size": {"train": ["."], "val": ["b"]}}, r"run '\.' is not inside"),
        ({"size": {"train": ["\0"], "val": ["b"]}}, "is not a folder"),
        ({"size": {"train": ["a" * 5000], "val": ["b"]}}, "File name too long"),
        ({"size": {"train": [["a"]], "val": ["b"]}}, "part 'train' is not a list"),
        ({"size": {"train": ["a", "g/1"], "val": ["g/2"]}}, r"'g/1' \(train\) and 'g/2' \(val\) are two recordings"),
    ],
)
def test_refuses(tmp_path: Path, splits: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_split(dataset(tmp_path, splits), "size")


def test_a_folder_without_splits(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_split(tmp_path, "size")


def test_a_splits_file_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    (dataset(tmp_path, {}) / "splits.json").write_bytes(b'{"\xff": 1}')
    with pytest.raises(InputError, match="not JSON"):
        read_split(tmp_path, "size")
