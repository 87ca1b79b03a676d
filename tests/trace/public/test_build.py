"""Which files were recorded together."""

from __future__ import annotations

from dataclasses import replace

from gnnperf.trace.public import Entry, load_catalog
from gnnperf.trace.public.catalog import Recording, recordings

RANK0 = Entry(
    name="me+mine/a/r0.pt.trace.json.gz", kind="kineto", run="mine/x y", repo="me/mine", commit="c" * 40,
    path="a/r0.json", size_bytes=10, sha256="1" * 64, mirror_sha256="2" * 64, license="MIT", gpu=None, rank=0,
    world_size=2, steps=None, with_shapes=None, scrubbed=None, note=None,
)  # fmt: skip
RANK1 = replace(RANK0, name="me+mine/a/r1.pt.trace.json.gz", path="a/r1.json", rank=1)


def test_ranks_of_a_run_belong_together_with_their_execution_trace() -> None:
    linked = replace(RANK0, name="me+mine/a/et.json.gz", path="a/et.json", kind="execution-trace", rank=None)
    table = replace(RANK0, name="me+mine/gemm.csv", kind="op-table", run=None)
    assert recordings([RANK1, table, linked, RANK0]) == (Recording("mine-x-y", (linked, RANK0, RANK1)),)


def test_files_that_are_not_known_to_be_ranks_are_recordings_of_their_own() -> None:
    result = recordings([replace(RANK0, rank=None), replace(RANK1, rank=None, sha256="3" * 64)])
    assert [r.name for r in result] == ["mine-x-y-11111111", "mine-x-y-33333333"]
    assert [len(r.entries) for r in result] == [1, 1]


def test_versions_of_one_file_are_recordings_of_their_own() -> None:
    newer = replace(RANK0, name="me+mine/a/new__r0.json.gz", rank=1, sha256="3" * 64)
    assert [r.name for r in recordings([RANK0, newer])] == ["mine-x-y-33333333", "mine-x-y-11111111"]


def test_recordings_of_the_shipped_catalog_have_names_of_their_own() -> None:
    result = {r.name: r for r in recordings(load_catalog())}
    assert len(result) == len(recordings(load_catalog()))
    assert len(result["torchrec-trace-sst_long_a2a_optimizer_5_qcomm-a"].entries) == 4
    assert len(result["megatron-tp2"].entries) == 4
    assert len(result["dlrm-8"].entries) == 2
