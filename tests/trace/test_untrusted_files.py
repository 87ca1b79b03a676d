"""Files that others wrote: small ones do not take much memory, damaged ones end in one message, links stay inside."""

import gzip
import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnperf.core import InputError, untrusted
from gnnperf.core.schema.parquet import MAX_FOOTER_BYTES, read_parquet
from gnnperf.trace import limits, read_run
from gnnperf.trace.storage import write_run
from tests.trace import kineto_files as files
from tests.traces import op, run_of, trace

TEXT = json.dumps(files.document(files.step_events())).encode()
ROWS = 100_000_000
LIMIT_MIB, LIMIT_S = 300, 2.0
LONG_TEXTS = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), pa.array(["x" * 2**20]))
MEASURED = r"""
import re, sys, time
from pathlib import Path
from gnnperf.cli import main
for path in sys.argv[1:]:
    before = time.process_time()
    print(main(["import", path, "--out", path + ".out"]), time.process_time() - before)
print(int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024)
"""


def _pax(name: str, data: bytes, **headers: str) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo(name)
        info.size, info.pax_headers = len(data), headers
        archive.addfile(info, io.BytesIO(data))
    return held.getvalue()


def sparse_tar(folder: Path) -> Path:
    """A file of 4 GiB, all of it a hole."""
    sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(2**32 - 1)}
    path = folder / "sparse.tar"
    path.write_bytes(_pax("rank_0.json", b"0\n".ljust(512, b"\0"), **sparse))
    return path


def large_header_tar(folder: Path) -> Path:
    """A name of 90 MiB, packed."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 90 * 2**20
    path = folder / "name.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + b"a" * info.size, 1))
    return path


def saved(folder: Path, num_rows: int = 2, about: Callable[[Any], Any] = lambda a: a, **extra: Any) -> Path:
    """Tables of constants only: `num_rows` of them take a few bytes."""
    write_run(run_of(trace(op("a", 0, 9), op("b", 1, 2))), folder / "saved")
    stored = pq.read_table(folder / "saved" / "events.parquet")
    meta = json.loads(pq.read_metadata(folder / "saved" / "events.parquet").metadata[b"gnnperf.trace"])
    meta["ranks"][0]["num_events"] = num_rows
    names = [name for name in stored.column_names if not name.endswith("_texts")]
    zeros = np.zeros(1, dtype=np.int64)
    path = folder / "events.parquet"
    if num_rows == 2:
        columns = {name: stored[name] for name in stored.column_names} | extra
    else:  # a dictionary of one value, and indices in runs
        index = pa.array(np.zeros(num_rows, dtype=np.int8))
        columns = {name: pa.DictionaryArray.from_arrays(index, pa.array(zeros)) for name in names[:1]}
    table = pa.table(columns).replace_schema_metadata({"gnnperf.trace": json.dumps(about(meta))})
    pq.write_table(table, path, compression="zstd")
    return path


def long_texts(folder: Path) -> Path:
    """20,000 texts of 1 MiB in the column of names."""
    path = saved(folder)
    meta = pq.read_metadata(path).metadata
    table = pa.table({"start_gap_ns": np.zeros(20_000, np.int64), "name_texts": LONG_TEXTS})
    pq.write_table(table.replace_schema_metadata({"gnnperf.trace": meta[b"gnnperf.trace"]}), path, compression="zstd")
    return path


def constant_rows(folder: Path) -> Path:
    return saved(folder, ROWS // 10)


def test_small_files_that_decode_to_gigabytes_are_refused_cheaply(tmp_path: Path) -> None:
    """One after the other in one process, whose peak bounds that of each."""
    payloads = (sparse_tar, large_header_tar, long_texts, constant_rows)
    folders = [tmp_path / payload.__name__ for payload in payloads]
    for folder in folders:
        folder.mkdir()
    paths = [payload(folder) for payload, folder in zip(payloads, folders, strict=True)]
    assert all(path.stat().st_size < 500_000 for path in paths)
    words = [sys.executable, "-c", MEASURED, *map(str, paths)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    *outcomes, peak_mib = done.stdout.splitlines()
    assert float(peak_mib) <= LIMIT_MIB
    for path, outcome, message in zip(paths, outcomes, done.stderr.splitlines(), strict=True):
        code, seconds = outcome.split()
        assert code == "2" and str(path) in message and float(seconds) <= LIMIT_S


def test_an_unknown_column_is_not_read(tmp_path: Path) -> None:
    table = pa.table({"a": np.zeros(20_000, np.int64), "unknown": LONG_TEXTS})
    pq.write_table(table, tmp_path / "t.parquet", compression="zstd")
    assert read_parquet(tmp_path / "t.parquet", ["a"]).column_names == ["a"]
    with pytest.raises(InputError, match=r"holds [\d,]+ bytes in [\d,]+"):
        read_parquet(tmp_path / "t.parquet")


def test_a_huge_footer_and_lists_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1" + (MAX_FOOTER_BYTES + 1).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(InputError, match="has a footer of"):
        read_parquet(path)
    pq.write_table(pa.table({"a": [[1], [2, 3]]}), path)
    with pytest.raises(InputError, match="holds lists"):
        read_parquet(path)


def test_texts_and_categories_keep_their_types(tmp_path: Path) -> None:
    table = pa.table({"text": ["a", "b", None], "category": pa.array(["x", "y", "x"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "t.parquet")
    assert read_parquet(tmp_path / "t.parquet").equals(table)


def test_less_memory_than_needed_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted, "LITTLE_BYTES", 0)
    monkeypatch.setattr(untrusted, "available_bytes", lambda: 100)
    for path in (files.write(tmp_path / "t.json", TEXT), saved(tmp_path)):
        size = path.stat().st_size
        files.refused(path, rf"has {size:,} bytes and takes about \d+ MiB of memory")


def test_available_memory_knows_the_limit_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    free = untrusted.available_bytes()
    assert 0 < free < 2**50
    monkeypatch.setattr(resource, "getrlimit", lambda which: (2**20, 2**20))
    assert untrusted.available_bytes() == 0


RANKS = {"rank_0.json": TEXT, "rank_1.json": TEXT}


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_zip_method_without_a_limit_is_refused(tmp_path: Path, method: int) -> None:
    files.refused(files.zipped(tmp_path / "t.zip", RANKS, method), "by method")


@pytest.mark.parametrize(
    ("card", "message"),
    [
        (b'{"a":' + b"[" * 100_000, "nested deeper"),
        (b'{"a": "\xff"}', "not a JSON object"),
        (b"[]", "not a JSON object"),
    ],
)
def test_a_card_that_cannot_be_read_is_refused(tmp_path: Path, card: bytes, message: str) -> None:
    files.write_ranks(tmp_path, 1)
    (tmp_path / "run.json").write_bytes(card)
    files.refused(tmp_path, message)


def test_links_that_leave_the_folder_and_pipes_are_skipped_with_a_warning(tmp_path: Path) -> None:
    files.write(tmp_path / "outside.json", files.document(files.step_events(), 1, 2))
    folder = files.write_ranks(tmp_path / "run", 2, [0])
    (folder / "rank_1.json").symlink_to(tmp_path / "outside.json")
    os.mkfifo(folder / "pipe.json")
    (folder / "device.json").symlink_to("/dev/zero")
    run = read_run(folder)
    assert [t.meta.rank for t in run.tables] == [0]
    skipped = [w for w in run.warnings if "skipped" in w]
    assert len(skipped) == 3 and all(name in str(skipped) for name in ("rank_1.json", "pipe.json", "device.json"))


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    files.write(tmp_path / "run" / "there" / "a.trace", TEXT)
    (tmp_path / "run" / "rank_0.json").symlink_to(tmp_path / "run" / "there" / "a.trace")
    assert len(read_run(tmp_path / "run").tables) == 1


def test_saved_tables_and_cards_behind_a_link_are_not_followed(tmp_path: Path) -> None:
    outside = saved(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events.parquet").symlink_to(outside)
    files.refused(tmp_path / "run", "not a regular file")
    (tmp_path / "card.json").write_text("{}")
    folder = files.write_ranks(tmp_path / "traces", 1)
    (folder / "run.json").symlink_to(tmp_path / "card.json")
    assert read_run(folder).card is None


def test_the_limit_of_a_tar_header_passes_long_names(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(_pax("a" * 200 + "/rank_0.json", TEXT))
    assert limits.MAX_TAR_HEADER_BYTES > 4096 and len(read_run(path).tables) == 1
