"""Docstrings as this code base writes them, put into the forms that the reference is made from.

Drawings become blocks of code, and `low, high: bounds.` becomes an entry for each of the two. Fields that a comment
explains where they are declared become entries, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from griffe import Extension

from docs.made.docstrings import comments_of

_DRAWN = re.compile(r"\S {3,}\S")
_SEVERAL = re.compile(r"^( +)(\w+(?:, \w+)+): (.*)$")


class DocstringForms(Extension):
    """Rewrites every docstring that is read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Called once per module, class and function."""
        if obj.docstring is not None:
            text = with_entries(with_drawings(obj.docstring.value))
            obj.docstring.value = with_fields(text, comments_of(obj.source)) if obj.is_class else text


def with_drawings(text: str) -> str:
    """Paragraphs with columns of blanks in them as fenced blocks; indented ones are blocks already."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(f"```text\n{p}\n```" if _is_drawing(p) else p for p in paragraphs)


def with_entries(text: str) -> str:
    """Entries of several names as one entry per name."""
    result: list[str] = []
    lines = text.split("\n")
    for at, line in enumerate(lines):
        match = _SEVERAL.match(line)
        if match is None:
            result.append(line)
            continue
        indent, names, meaning = match[1], match[2].split(", "), match[3]
        rest = _continued(lines[at + 1 :], indent)
        for name in names[:-1]:
            result += [f"{indent}{name}: {meaning}", *rest]
        result.append(f"{indent}{names[-1]}: {meaning}")  # its further lines follow anyway
    return "\n".join(result)


def with_fields(text: str, comments: Mapping[str, str]) -> str:
    """With an entry of `Attributes:` for each field that has a comment and no entry."""
    listed = set(re.findall(r"^ +(\w+)(?: \([^)]*\))?: ", text, flags=re.MULTILINE))
    entries = "".join(f"    {name}: {meaning}\n" for name, meaning in comments.items() if name not in listed)
    if not entries:
        return text
    if "Attributes:\n" in text:
        return text.replace("Attributes:\n", f"Attributes:\n{entries}", 1)
    return f"{text.rstrip()}\n\nAttributes:\n{entries}"


def _is_drawing(paragraph: str) -> bool:
    lines = paragraph.strip("\n").split("\n")
    return not lines[0].startswith(" ") and not lines[0].endswith(":") and any(map(_DRAWN.search, lines))


def _continued(lines: list[str], indent: str) -> list[str]:
    """The lines that go on with an entry: indented further than it."""
    result: list[str] = []
    for line in lines:
        if not line.startswith(f"{indent} "):
            break
        result.append(line)
    return result
