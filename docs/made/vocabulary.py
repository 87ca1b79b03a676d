"""The kinds of everything (`gnnperf/core/schema/words.py`) as Markdown: every member with what its comment says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import StrEnum

from docs.made.docstrings import summary
from gnnperf.core.schema import words

INTRODUCTION = """\
# Words

Made from `gnnperf/core/schema/words.py`: the values that columns of kinds take. The [glossary](glossary.md) explains
all other terms.
"""
_MEMBER = re.compile(r'^    [A-Z0-9_]+ = "(\w+)"(?:\s+# (.*))?$', re.MULTILINE)


def word_page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(_section(kind) for kind in kinds())])


def kinds() -> list[type[StrEnum]]:
    """The enums of the module, in its order."""
    result = (each for each in vars(words).values() if inspect.isclass(each))
    return [each for each in result if issubclass(each, StrEnum) and each is not StrEnum]


def members(kind: type[StrEnum]) -> Iterator[tuple[str, str]]:
    """(value, what its comment says; "" none)."""
    yield from _MEMBER.findall(inspect.getsource(kind))


def _section(kind: type[StrEnum]) -> str:
    rows = [f"| `{value}` | {meaning.replace('|', '/')} |" for value, meaning in members(kind)]
    return "\n".join([f"## {kind.__name__}\n\n{summary(kind)}\n", "| value | meaning |", "|---|---|", *rows, ""])
