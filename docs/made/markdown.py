"""What a Markdown page holds that can be checked: code blocks, links, headings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)\s*([\w+-]*)")
_NOTE = re.compile(r"^<!--\s*(.*?)\s*-->$")
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_NAMED = re.compile(r"""<a\s+(?:id|name)=["']([^"']+)["']""")


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        language: as its fence says; "" for an indented block and for a fence without one.
        lines: of its text, without fence and common indentation.
        first: number of the first line of its text in the page, from 0.
        note: the HTML comment on the line above its fence; "" none.
    """

    language: str
    lines: tuple[str, ...]
    first: int
    note: str = ""

    @property
    def text(self) -> str:
        """Its lines in one."""
        return "".join(f"{line}\n" for line in self.lines)


@dataclass
class _Page:
    """A page taken apart: its blocks, and the lines outside of them."""

    blocks: list[Block] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)


def blocks(text: str) -> list[Block]:
    """Fenced and indented blocks of code, in order."""
    return _taken_apart(text).blocks


def prose(text: str) -> str:
    """The lines outside of blocks."""
    return "\n".join(_taken_apart(text).prose)


def links(text: str) -> list[str]:
    """Targets of links and images outside of code."""
    return _LINK.findall(re.sub(r"`[^`\n]*`", "", prose(text)))


def anchors(text: str) -> set[str]:
    """What `#...` may name in the page: its headings, as GitHub and the site spell them, and named places."""
    result: dict[str, int] = {}
    names: set[str] = set()
    prose = _taken_apart(text).prose
    for heading in filter(None, map(_HEADING.match, prose)):
        slug = slug_of(heading[1])
        count = result.setdefault(slug, 0)
        result[slug] += 1
        names.add(f"{slug}-{count}" if count else slug)
    return names | set(_NAMED.findall("\n".join(prose)))


def slug_of(heading: str) -> str:
    """A heading as an anchor: lower case, punctuation left out, hyphens for spaces."""
    shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")


def _taken_apart(text: str) -> _Page:
    page, lines, at = _Page(), text.splitlines(), 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence:
            at = _fenced(page, lines, at, fence[1], fence[2])
        elif lines[at].startswith("    ") and (at == 0 or not lines[at - 1].strip()):
            at = _indented(page, lines, at)
        else:
            page.prose.append(lines[at])
            at += 1
    return page


def _fenced(page: _Page, lines: list[str], at: int, fence: str, language: str) -> int:
    """Add the block whose fence is at line `at`; where the page goes on behind it."""
    end = at + 1
    while end < len(lines) and lines[end].strip() != fence:
        end += 1
    above = _NOTE.match(lines[at - 1].strip()) if at else None
    page.blocks.append(Block(language, tuple(lines[at + 1 : end]), at + 1, above[1] if above else ""))
    return end + 1


def _indented(page: _Page, lines: list[str], at: int) -> int:
    """Add the indented block that begins at line `at`; where the page goes on behind it."""
    end = at
    while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
        end += 1
    while not lines[end - 1].strip():
        end -= 1
    page.blocks.append(Block("", tuple(line[4:] for line in lines[at:end]), at))
    return end
