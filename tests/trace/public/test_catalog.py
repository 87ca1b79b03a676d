"""The shipped catalog, and how entries are chosen from it."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.trace.public import load_catalog, select
from gnnperf.trace.public.catalog import CATALOG, Entry
from research.tables.shipped_catalog import entry_from_mirror, save_catalog

PLAIN = Entry(
    name="me+mine/a/trace.json.gz", kind="kineto", run="mine", repo="me/mine", commit="c" * 40, path="a/trace.json",
    size_bytes=10, sha256="1" * 64, mirror_sha256="2" * 64, license="MIT", gpu="Tesla T4", rank=0, world_size=2,
    steps=None, with_shapes="yes", scrubbed=None, note=None,
)  # fmt: skip
OTHER = replace(PLAIN, name="me+mine/b/trace.json.gz", path="b/trace.json", rank=1)
TABLE = replace(PLAIN, name="me+mine/gemm.csv", path="gemm.csv", kind="op-table", run=None, mirror_sha256="1" * 64)
ENTRIES = (PLAIN, OTHER, TABLE)


def test_the_shipped_catalog_is_small_complete_and_unambiguous() -> None:
    entries = load_catalog()
    assert len(entries) == 2981
    assert CATALOG.stat().st_size <= 200_000
    assert len({e.name for e in entries}) == len(entries)
    assert all(len(e.sha256) == len(e.mirror_sha256) == 64 for e in entries)
    assert all(e.commit is None or len(e.commit) == 40 for e in entries)
    assert sum(e.commit is None for e in entries) == 5
    assert all(e.license for e in entries)


def test_shipped_runs_hold_the_ranks_they_were_recorded_with() -> None:
    ranks = [e.rank for e in select(load_catalog(), runs=["torchrec/trace/sst_long_a2a_optimizer"])]
    assert sorted(r for r in ranks if r is not None) == [0, 1, 2, 3]
    assert {e.kind for e in select(load_catalog(), runs=["megatron-tp2"])} >= {"kineto", "execution-trace"}


def test_saving_and_loading_gives_the_same_entries_and_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "one.csv.gz", tmp_path / "two.csv.gz"
    save_catalog(ENTRIES, first)
    save_catalog(reversed(ENTRIES), second)
    assert load_catalog(first) == ENTRIES
    assert first.read_bytes() == second.read_bytes()


@given(note=st.text(st.characters(codec="utf-8", exclude_characters="\r\x00")), rank=st.none() | st.integers(0, 10**6))
def test_any_note_and_rank_survive(tmp_path_factory: pytest.TempPathFactory, note: str, rank: int | None) -> None:
    path = tmp_path_factory.mktemp("catalog") / "c.csv.gz"
    save_catalog([replace(PLAIN, note=note or None, rank=rank)], path)
    assert load_catalog(path) == (replace(PLAIN, note=note or None, rank=rank),)


@pytest.mark.parametrize("name", ["../secrets", "/etc/passwd", "a/../../b"])
def test_a_name_outside_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    save_catalog([replace(PLAIN, name=name)], tmp_path / "c.csv.gz")
    with pytest.raises(InputError, match="points outside"):
        load_catalog(tmp_path / "c.csv.gz")


@pytest.mark.parametrize("content", [gzip.compress(b"a,b\n1,2\n"), b"not gzip", gzip.compress(b"a,b\n1,2\n")[:-9]])
def test_what_is_no_catalog_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.csv.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"c\.csv\.gz"):
        load_catalog(tmp_path / "c.csv.gz")


def test_selection_by_name_run_kind_and_pattern() -> None:
    assert select(ENTRIES) == ENTRIES
    assert select(ENTRIES, names=["gemm.csv"]) == (TABLE,)
    assert select(ENTRIES, names=["*/b/*"]) == (OTHER,)
    assert select(ENTRIES, runs=["min*"]) == (PLAIN, OTHER)
    assert select(ENTRIES, kinds=["op-table"]) == (TABLE,)
    assert select(ENTRIES, runs=["mine"], kinds=["op-table"]) == ()
    with pytest.raises(InputError, match=r"no run 'mines' .* such as mine"):
        select(ENTRIES, runs=["mines"])


def test_only_files_that_upstream_publishes_plain_are_recompressed() -> None:
    assert PLAIN.recompressed
    assert not TABLE.recompressed
    assert not replace(PLAIN, path="a/trace.json.gz").recompressed


def test_a_mirror_row_with_empty_records_means_unknown() -> None:
    cells = ["kind", "run", "repo", "commit", "upstream_path", "file", "sha256", "upstream_sha256", "licence", "gpu",
             "rank", "world_size", "steps", "with_shapes", "scrubbed", "note"]  # fmt: skip
    entry = entry_from_mirror(dict.fromkeys(cells, "") | {"bytes": "7", "rank": "3.0"})
    assert (entry.rank, entry.world_size, entry.commit, entry.run, entry.size_bytes) == (3, None, None, None, 7)
