"""The names for users of the Python interface, as one page: those that the pages of docs/reference explain."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from docs.made.docstrings import summary

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
PAGES = ("predict", "graph", "schedule", "analytic", "data", "models", "record", "schema")  # in the order of the site
MEMBERS = re.compile(r"^::: (gnnperf[\w.]*)(?:\n    options:\n      members: \[([^\]]*)\])?$", re.MULTILINE)

IMPORTS = re.compile(r"^ *from (gnnperf[\w.]*) import ([\w, ]+|\([^)]*\))$", re.MULTILINE)
INTRODUCTION = """\
# Public names

{count} names are for programs that use gnnperf. [Python](../how-to/python.md) shows the usual ones. All other exports
of `gnnperf/*/__init__.pyi` are for other packages of gnnperf, and change without notice.
"""


def public_names(page: str) -> Iterator[tuple[str, str]]:
    """(name as it is imported, its first sentences) of a page of the reference."""
    for module, members in MEMBERS.findall((REFERENCE / f"{page}.md").read_text(encoding="utf-8")):
        names = members.split(", ") if members else [module.rpartition(".")[2]]
        for name in names:
            result = pkgutil.resolve_name(f"{module}:{name}" if members else f"{module.rpartition('.')[0]}:{name}")
            home = module if members else module.rpartition(".")[0]
            package = ".".join(home.split(".")[:2])
            exported = getattr(importlib.import_module(package), name, None) is result
            text = f"`{'`, `'.join(result)}`" if isinstance(result, tuple) else summary(result)
            yield f"{package if exported else home}.{name}", text


def imported_names() -> set[str]:
    """The names of gnnperf that pages and examples import."""
    root = REFERENCE.parents[1]
    files = (*(root / "docs").rglob("*.md"), root / "README.md", *(root / "examples").glob("*.py"))
    lines = [match for file in files for match in IMPORTS.findall(file.read_text(encoding="utf-8"))]
    return {f"{module}.{name}" for module, names in lines for name in re.findall(r"\w+", names)}


def name_page() -> str:
    """The whole page."""
    sections = {page: list(public_names(page)) for page in PAGES}
    parts = [INTRODUCTION.format(count=sum(map(len, sections.values())))]
    for page, rows in sections.items():
        title = (REFERENCE / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        table = "".join(f"| `{name}` | {text.replace('|', '/')} |\n" for name, text in rows)
        parts.append(f"## {title}\n\nDetails: [{title}]({page}.md).\n\n| name | meaning |\n|---|---|\n{table}")
    return "\n".join(parts)
