"""Fetching: what ends up in the folder is verified, whole, or absent."""

import gzip
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.trace.public import Entry, Origin, fetch, load_catalog, select
from gnnperf.trace.public.fetch import BACK_OFF_S, download, upstream_url
from tests.trace.public.file_server import Site, serving

TRACE = b'{"traceEvents": []}' * 100
MIRRORED = gzip.compress(TRACE, 9, mtime=7)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


ENTRY = Entry(
    name="me+mine/a b/trace.json.gz", kind="kineto", run="mine", repo="me/mine", commit="c" * 40,
    path="a b/trace.json", size_bytes=len(MIRRORED), sha256=_sha256(TRACE), mirror_sha256=_sha256(MIRRORED),
    license="MIT", gpu=None, rank=0, world_size=None, steps=None, with_shapes=None, scrubbed=None, note=None,
)  # fmt: skip
AS_PUBLISHED = replace(ENTRY, name="me+mine/t.csv", path="t.csv", size_bytes=len(TRACE), mirror_sha256=ENTRY.sha256)
PATH = f"/me/mine/{'c' * 40}/a%20b/trace.json"
PATH_PUBLISHED = f"/me/mine/{'c' * 40}/t.csv"


def _files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def _mirror(tmp_path: Path, content: bytes) -> Path:
    file = tmp_path / "mirror" / ENTRY.name
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    return tmp_path / "mirror"


def test_the_address_names_repository_commit_and_path() -> None:
    assert upstream_url(ENTRY) == f"https://raw.githubusercontent.com{PATH}"


def test_without_a_commit_only_a_mirror_has_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--mirror"):
        fetch(replace(ENTRY, commit=None), tmp_path, Origin())


def test_from_a_mirror(tmp_path: Path) -> None:
    path = fetch(ENTRY, tmp_path / "to", Origin(_mirror(tmp_path, MIRRORED)))
    assert path.read_bytes() == MIRRORED
    assert _files(tmp_path / "to") == [ENTRY.name]


@pytest.mark.parametrize(
    ("entry", "content", "message"),
    [(ENTRY, gzip.compress(TRACE + b" "), "other bytes"), (AS_PUBLISHED, MIRRORED, "not in the mirror")],
)
def test_what_the_mirror_lacks_or_holds_otherwise_is_refused(
    tmp_path: Path, entry: Entry, content: bytes, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fetch(entry, tmp_path / "to", Origin(_mirror(tmp_path, content)))
    assert _files(tmp_path / "to") == []


def test_from_upstream_plain_json_is_packed_and_the_folder_serves_as_a_mirror(tmp_path: Path) -> None:
    with serving(Site({PATH: TRACE})) as site:
        path = fetch(ENTRY, tmp_path / "one", Origin(base_url=site.url))
    assert gzip.decompress(path.read_bytes()) == TRACE
    assert _files(tmp_path / "one") == [ENTRY.name]
    again = fetch(ENTRY, tmp_path / "two", Origin(tmp_path / "one"))
    assert again.read_bytes() == path.read_bytes()


def test_from_upstream_as_published(tmp_path: Path) -> None:
    with serving(Site({PATH_PUBLISHED: TRACE})) as site:
        assert fetch(AS_PUBLISHED, tmp_path, Origin(base_url=site.url)).read_bytes() == TRACE


def test_what_is_there_and_verified_is_not_fetched_again(tmp_path: Path) -> None:
    with serving(Site({PATH: TRACE})) as site:
        fetch(ENTRY, tmp_path, Origin(base_url=site.url))
        fetch(ENTRY, tmp_path, Origin(base_url=site.url))
    assert len(site.requested) == 1


def test_what_is_there_and_damaged_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / ENTRY.name
    target.parent.mkdir(parents=True)
    target.write_bytes(MIRRORED[:-4])
    with serving(Site({PATH: TRACE})) as site:
        fetch(ENTRY, tmp_path, Origin(base_url=site.url))
    assert gzip.decompress(target.read_bytes()) == TRACE


def test_other_bytes_upstream_are_refused_and_not_retained(tmp_path: Path) -> None:
    with serving(Site({PATH: TRACE.replace(b"[", b"(")})) as site, pytest.raises(InputError, match="other bytes"):
        fetch(ENTRY, tmp_path, Origin(base_url=site.url))
    assert _files(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "to").write_text("a file where the folder should be")
    with pytest.raises(InputError, match="cannot be written"):
        fetch(ENTRY, tmp_path / "to", Origin(_mirror(tmp_path, MIRRORED)))


@pytest.mark.mirror
def test_the_real_mirror_holds_what_the_catalog_promises(mirror: Path, tmp_path: Path) -> None:
    chosen = select(load_catalog(), runs=["dlrm-8", "megatron-tp2", "tracelens/h100/gaunernst*"])
    assert len(chosen) == 9
    for entry in chosen:
        assert os.path.samefile(fetch(entry, mirror, Origin()), mirror / entry.name)  # verified in place
        assert fetch(entry, tmp_path, Origin(mirror)).stat().st_size == entry.size_bytes


CONTENT = bytes(range(256)) * 40  # 10,240 bytes


def _pauses(site: Site, **limits: int) -> tuple[bytes, list[float]]:
    """What is downloaded of /f, and the pauses before."""
    pauses: list[float] = []
    with serving(site):
        content = download(f"{site.url}/f", limit_bytes=limits.get("limit_bytes", len(CONTENT)), sleep=pauses.append)
    return content, pauses


def test_passing_faults_are_tried_again_with_growing_pauses() -> None:
    assert _pauses(Site({"/f": CONTENT}, statuses=[503, 429])) == (CONTENT, list(BACK_OFF_S[:2]))
    assert _pauses(Site({"/f": CONTENT}, cut_after=1000)) == (CONTENT, list(BACK_OFF_S[:1]))


def test_a_server_that_stays_down_is_reported_after_the_last_attempt() -> None:
    site = Site({}, statuses=[503] * 9)
    with pytest.raises(InputError, match="Service Unavailable"):
        _pauses(site)
    assert len(site.requested) == len(BACK_OFF_S) + 1


def test_a_missing_file_and_too_many_bytes_are_reported_at_once() -> None:
    for site, message in ((Site({}), "HTTP 404"), (Site({"/f": CONTENT}), "more than the 100 bytes")):
        with pytest.raises(InputError, match=message):
            _pauses(site, limit_bytes=100)
        assert len(site.requested) == 1


def test_no_one_listening_is_reported() -> None:
    with serving(Site({})) as site:
        gone = site.url
    with pytest.raises(InputError, match="refused"):
        download(f"{gone}/f", limit_bytes=1, sleep=lambda s: None)
