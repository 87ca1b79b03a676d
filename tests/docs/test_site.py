"""The site builds without a warning and needs no network; links between pages lead to files, pages, headings."""

import os
import posixpath
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from docs.made.markdown import anchors, blocks, links, slug_of
from docs.made.pages import DOCS, DOCUMENTS, MADE, ROOT, with_links_of_site, written_pages
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


PAGES = written_pages()
OTHERS = sorted(
    str(path.relative_to(ROOT)) for at in ("research/benchmarks", "datasets/*") for path in ROOT.glob(f"{at}/*.md")
)
MADE_PAGES = {f"{DOCS}/{page}": make for page, make in MADE.items()}
MADE_PICTURES = {f"{DOCS}/pictures/{name}.svg" for name in PICTURES}


@cache
def _text(page: str) -> str:
    return MADE_PAGES[page]() if page in MADE_PAGES else (ROOT / page).read_text(encoding="utf-8")


def _broken(page: str) -> list[str]:
    result = []
    for link in links(_text(page)):
        target, _, anchor = link.partition("#")
        if "://" in link:
            continue
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) if target else page
        there = meant in MADE_PAGES or meant in MADE_PICTURES or (ROOT / meant).exists()
        if not there or (anchor and anchor not in anchors(_text(meant))):
            result.append(link)
    return result


@pytest.mark.parametrize("page", [*PAGES, *OTHERS, *MADE_PAGES])
def test_links_and_their_anchors_resolve(page: str) -> None:
    assert _broken(page) == []


def test_a_link_to_nothing_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "# A page\n\n[a](nowhere.md) [b](#a-page) [c](#nothing) ![d](pictures/none.svg) `[e](code.md)`\n"
    monkeypatch.setitem(MADE_PAGES, f"{DOCS}/page.md", lambda: text)
    assert _broken(f"{DOCS}/page.md") == ["nowhere.md", "#nothing", "pictures/none.svg"]


def test_headings_are_spelled_as_github_does() -> None:
    assert slug_of("Contention: the schedule's second pass") == "contention-the-schedules-second-pass"
    assert slug_of("`train.py`, [keys](x.md)") == "trainpy-keys"
    assert anchors("# A b\n\n## A b\n\n```\n# no heading\n```\n") == {"a-b", "a-b-1"}


def test_blocks_know_their_lines_and_notes() -> None:
    text = "words\n\n<!-- slow: long -->\n```sh\ngnnperf a\n```\n\n    indented\n      more\n\nwords\n"
    fenced, indented = blocks(text)
    assert (fenced.language, fenced.lines, fenced.first, fenced.note) == ("sh", ("gnnperf a",), 4, "slow: long")
    assert (indented.language, indented.lines, indented.first) == ("", ("indented", "  more"), 7)


def test_links_of_the_repository_become_links_of_the_site() -> None:
    text = "[a](../README.md#train) [b](../LICENSE) [c](features.md)\n\n    [d](../README.md)\n"
    expected = "[a](project/readme.md#train) b [c](features.md)\n\n    [d](../README.md)\n"
    assert with_links_of_site(text, "tutorial.md") == expected
    assert with_links_of_site("[f](docs/features.md)", "project/readme.md") == "[f](../features.md)\n"


def test_every_page_is_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.removeprefix(f"{DOCS}/") for page in [*PAGES, *MADE_PAGES] if page not in DOCUMENTS]
    assert [page for page in [*pages, *DOCUMENTS.values()] if f" {page}\n" not in listed] == []
