"""Links between pages lead somewhere: files, pages that the build makes, headings."""

import posixpath
from functools import cache

import pytest

from docs.made.markdown import anchors, blocks, links, slug_of
from docs.made.pages import DOCS, DOCUMENTS, MADE, ROOT, with_links_of_site, written_pages
from docs.made.pictures import PICTURES

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
