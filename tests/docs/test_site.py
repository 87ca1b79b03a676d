"""The site builds without a warning, and needs nothing from a network when it is read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.made.pages import ROOT
from docs.made.pictures import PICTURES

FETCHED = re.compile(r"<(?:script|img|iframe)[^>]+src=\"(https?:)?//|<link[^>]+href=\"(https?:)?//[^>]+stylesheet")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
                          cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.ci
@pytest.mark.timeout(300)
def test_the_site_builds_strictly_and_has_what_the_code_makes(site: Path) -> None:
    for page in ("index", "tutorial", "reference/configuration", "reference/command-line", "project/architecture"):
        assert (site / f"{page}.html").is_file()
    assert {path.stem for path in (site / "pictures").iterdir()} == set(PICTURES)
    assert "gnnperf.schedule.longest_path.Schedule" in (site / "reference/schedule.html").read_text()
    assert not list(site.rglob("*.py"))


@pytest.mark.ci
@pytest.mark.timeout(300)
def test_readers_need_no_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    assert [page.name for page in pages if FETCHED.search(page.read_text())] == []
