"""Downloading: retries, resuming, limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.trace.public.fetch import BACK_OFF_S, download
from tests.trace.public.file_server import Site, serving

CONTENT = bytes(range(256)) * 40  # 10,240 bytes


def test_a_broken_connection_is_resumed_where_it_broke(tmp_path: Path) -> None:
    part = tmp_path / "f.part"
    counted: list[int] = []
    with serving(Site({"/f": CONTENT}, cut_after=1000)) as site:
        download(f"{site.url}/f", part, limit_bytes=len(CONTENT), on_bytes=counted.append, sleep=lambda s: None)
    assert part.read_bytes() == CONTENT
    assert site.requested == [("/f", None), ("/f", "bytes=1000-")]
    assert sum(counted) == len(CONTENT)


def test_an_earlier_partial_file_is_resumed(tmp_path: Path) -> None:
    part = tmp_path / "f.part"
    part.write_bytes(CONTENT[:4000])
    with serving(Site({"/f": CONTENT})) as site:
        download(f"{site.url}/f", part, limit_bytes=len(CONTENT))
    assert part.read_bytes() == CONTENT
    assert site.requested == [("/f", "bytes=4000-")]


def test_a_server_without_ranges_sends_all_again(tmp_path: Path) -> None:
    part = tmp_path / "f.part"
    part.write_bytes(CONTENT[:4000])
    with serving(Site({"/f": CONTENT}, ranges=False)) as site:
        download(f"{site.url}/f", part, limit_bytes=len(CONTENT))
    assert part.read_bytes() == CONTENT


def test_a_partial_file_longer_than_the_file_is_thrown_away(tmp_path: Path) -> None:
    part = tmp_path / "f.part"
    part.write_bytes(CONTENT + b"more")
    with serving(Site({"/f": CONTENT})) as site:
        download(f"{site.url}/f", part, limit_bytes=len(CONTENT), sleep=lambda s: None)
    assert part.read_bytes() == CONTENT


def test_passing_faults_are_tried_again_with_growing_pauses(tmp_path: Path) -> None:
    pauses: list[float] = []
    with serving(Site({"/f": CONTENT}, statuses=[503, 429])) as site:
        download(f"{site.url}/f", tmp_path / "f", limit_bytes=len(CONTENT), sleep=pauses.append)
    assert pauses == list(BACK_OFF_S[:2])
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_a_server_that_stays_down_is_reported_after_the_last_attempt(tmp_path: Path) -> None:
    pauses: list[float] = []
    with serving(Site({}, statuses=[503] * 9)) as site, pytest.raises(InputError, match="Service Unavailable"):
        download(f"{site.url}/f", tmp_path / "f", limit_bytes=1, sleep=pauses.append)
    assert pauses == list(BACK_OFF_S)
    assert len(site.requested) == len(BACK_OFF_S) + 1


def test_a_missing_file_is_reported_at_once(tmp_path: Path) -> None:
    with serving(Site({})) as site, pytest.raises(InputError, match="HTTP 404"):
        download(f"{site.url}/f", tmp_path / "f", limit_bytes=1)
    assert len(site.requested) == 1


def test_no_one_listening_is_reported(tmp_path: Path) -> None:
    with serving(Site({})) as site:
        gone = site.url
    with pytest.raises(InputError, match="refused"):
        download(f"{gone}/f", tmp_path / "f", limit_bytes=1, sleep=lambda s: None)
    assert not (tmp_path / "f").exists()


def test_more_bytes_than_expected_are_refused_and_not_retained(tmp_path: Path) -> None:
    with serving(Site({"/f": CONTENT})) as site, pytest.raises(InputError, match="more than the 100 bytes"):
        download(f"{site.url}/f", tmp_path / "f", limit_bytes=100)
    assert not (tmp_path / "f").exists()
