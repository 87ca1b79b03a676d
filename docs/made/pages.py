"""Pages of the site that are no file below docs/: made from the code, or documents of the repository's root."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from docs.made.columns import column_page
from docs.made.commands import command_page
from docs.made.configuration import configuration_page
from docs.made.markdown import blocks
from docs.made.public_names import name_page
from docs.made.vocabulary import word_page

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs"
MADE: dict[str, Callable[[], str]] = {
    "reference/index.md": name_page,
    "reference/configuration.md": configuration_page,
    "reference/columns.md": column_page,
    "reference/words.md": word_page,
    "reference/command-line.md": command_page,
}
DOCUMENTS = {
    "README.md": "project/readme.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "BENCHMARKS.md": "project/benchmarks.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def written_pages() -> list[str]:
    """Paths in the repository of all pages that are files, documents of the root among them; sorted."""
    return sorted({*DOCUMENTS, *(str(path.relative_to(ROOT)) for path in (ROOT / DOCS).rglob("*.md"))})


def home_of(page: str) -> str:
    """Path in the repository of what a page of the site is made from; that of the page, if it is made from the code."""
    return next((document for document, shown in DOCUMENTS.items() if shown == page), f"{DOCS}/{page}")


def with_links_of_site(text: str, page: str) -> str:
    """The text with links that hold in the repository as links that hold in the site, seen from `page`.

    What the site does not show (a license, a folder) loses its link and keeps its words.
    """
    lines = text.splitlines()
    code = {number for block in blocks(text) for number in range(block.first, block.first + len(block.lines))}
    for number, line in enumerate(lines):
        if number not in code:
            lines[number] = _LINK.sub(lambda match: _moved(match, page), line)
    return "\n".join(lines) + "\n"


def _moved(match: re.Match[str], page: str) -> str:
    image, words, target, anchor = match[1], match[2], match[3], match[4] or ""
    meant = posixpath.normpath(posixpath.join(posixpath.dirname(home_of(page)), target))
    shown = DOCUMENTS.get(meant) or (meant.removeprefix(f"{DOCS}/") if meant.startswith(f"{DOCS}/") else None)
    if shown is None:
        return words
    return f"{image}[{words}]({posixpath.relpath(shown, posixpath.dirname(page) or '.')}{anchor})"
