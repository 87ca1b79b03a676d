"""What the network is given, as Markdown: python -m docs.made.features > docs/features.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gnnperf.core import LABEL_COLUMNS, NODE_COLUMNS, NUM_TEXT_FEATURES, WORK_FEATURES, WORK_TYPES, Column
from gnnperf.gnn.data.vocabulary import FIELDS

LANE = Column("lane", "category", "", "main thread, another thread, or which stream: first to third, a later one")

INTRODUCTION = f"""\
# Features

What the network knows of a node before the run. This page is made from `gnnperf/core/schema` and
`gnnperf/gnn/data/vocabulary.py`:

    python -m docs.made.features > docs/features.md

Statistics of the normalizer and tokens of the vocabulary come from training runs only. An unknown number is 0, with a
flag; "log" of what may be 0 is log(1 + x). Labels of a node are never among its features:
{", ".join(f"`{name}`" for name in LABEL_COLUMNS)}."""


def feature_page() -> str:
    """The whole page."""
    columns = {column.name: column for column in (*NODE_COLUMNS, LANE)}
    kinds = ", ".join(f"`{kind}`" for kind in WORK_TYPES)
    sections = (
        (f"Numbers of work ({kinds})", "", _rows((*WORK_FEATURES, _text_feature()))),
        ("Tokens of work nodes", "Code 0 is the unknown token.", _rows(columns[field] for field in FIELDS)),
    )
    return "\n\n".join([INTRODUCTION, *(_section(*section) for section in sections)]) + "\n"


def _text_feature() -> Column:
    name = f"text_0` to `text_{NUM_TEXT_FEATURES - 1}"
    return Column(name, "float32", "", "pieces of the op's name, hashed: an unseen op gets a hash near related ops")


def _rows(columns: Iterable[Column]) -> list[tuple[str, str, str]]:
    return [(f"`{column.name}`", column.unit, column.meaning) for column in columns]


def _section(title: str, note: str, rows: Sequence[tuple[str, str, str]]) -> str:
    table = [("name", "unit", "meaning"), ("---", "---", "---"), *rows]
    text = "\n".join(f"| {' | '.join(record.replace('|', '/') for record in row)} |" for row in table)
    return "\n\n".join(part for part in (f"## {title}", note, text) if part)


if __name__ == "__main__":
    print(feature_page(), end="")
