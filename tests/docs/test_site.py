"""The site builds without a warning, and needs nothing from a network when it is read."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.made.pages import DOCS, ROOT
from docs.made.pictures import PICTURES

FETCHED = re.compile(r"<(?:script|img|iframe)[^>]+src=\"(https?:)?//|<link[^>]+href=\"(https?:)?//[^>]+stylesheet")

MEMBERS = re.compile(r"^::: (\S+)\n(?:    options:\n      members: \[([^\]]*)\])?", re.MULTILINE)


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
    assert not list(site.rglob("*.py"))


@pytest.mark.ci
@pytest.mark.timeout(300)
def test_reference_pages_have_every_name_that_they_list(site: Path) -> None:
    """A name that the code no longer has would be left out without a warning."""
    for page in (ROOT / DOCS / "reference").glob("*.md"):
        shown = set(re.findall(r'id="([\w.]+)"', (site / f"reference/{page.stem}.html").read_text()))
        for module, members in MEMBERS.findall(page.read_text()):
            listed = {f"{module}.{name}" for name in members.split(", ")} if members else {module}
            assert listed <= shown, page.name
    assert "whether latencies start from measurements of the trace" in (site / "reference/predict.html").read_text()


@pytest.mark.ci
@pytest.mark.timeout(300)
def test_readers_need_no_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    assert [page.name for page in pages if FETCHED.search(page.read_text())] == []
