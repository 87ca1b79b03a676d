"""What a dataclass states about its fields: in its docstring, or in comments where they are declared."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

_ENTRY = re.compile(r"(\w+(?:, \w+)*): (.*)", re.DOTALL)
_SECTION = "Attributes:"
_FIELD = re.compile(
    r"^((?:    # .*\n)*)    (\w+): [^#\n]*(?:  # (.*))?\n", re.MULTILINE
)  # comments before it, name, comment behind it


def summary(kind: type) -> str:
    """The first paragraph of the docstring, in one line."""
    return " ".join(inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].split())


def field_docs(kind: Any) -> dict[str, str]:
    """Field -> what the `Attributes:` of the class, or of a base class, or its own comment, say about it."""
    names = {field.name for field in dataclasses.fields(kind)}
    result: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if "__dataclass_fields__" in vars(base):
            result |= {name: text for name, text in comments_of(inspect.getsource(base)).items() if name in names}
        for entry in _entries(inspect.cleandoc(base.__doc__ or ""), names):
            result |= {name: entry[1] for name in entry[0].split(", ") if name in names}
    return result


def comments_of(source: str) -> dict[str, str]:
    """Field -> the comment behind it, or the lines of comment before it."""
    own = {
        name: behind or " ".join(before.replace("#", " ").split()) for before, name, behind in _FIELD.findall(source)
    }
    return {name: text if text.endswith(".") else f"{text}." for name, text in own.items() if text}


def _entries(text: str, names: set[str]) -> list[tuple[str, str]]:
    """(names, meaning) of the section; an entry may hold several: `low: above; high: below`."""
    if _SECTION not in text:
        return []
    section = text.partition(_SECTION)[2].partition("\n\n")[0].strip("\n")
    lines = inspect.cleandoc("\n" + section)
    wholes = [" ".join(entry.split()) for entry in re.split(r"\n(?! )", lines)]
    parts = [part for whole in wholes for part in _split(whole, names)]
    return [(match[1], match[2]) for match in map(_ENTRY.match, parts) if match]


def _split(entry: str, names: set[str]) -> list[str]:
    """Where "; name: " begins another field."""
    others = "|".join(map(re.escape, sorted(names)))
    return re.split(rf"; (?=(?:{others})(?:, \w+)*: )", entry)
