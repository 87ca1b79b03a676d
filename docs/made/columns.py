"""The tables that packages hand to each other, column by column, as Markdown."""

from __future__ import annotations

from gnnperf.core.schema import EDGE_COLUMNS, EVENT_COLUMNS, NODE_COLUMNS, PREDICTION_COLUMNS, Column

INTRODUCTION = """\
# Columns

Made from `gnnperf/core/schema/tables.py`. Unknown is NaN (floats), null (texts) or -1 (identifiers), never 0. What the
network is told about a node is another table: [Features](../features.md).
"""
TABLES = (
    ("Events", "A TraceTable: one rank's events, `schema.EVENT_COLUMNS`.", EVENT_COLUMNS),
    ("Nodes", "`ExecutionGraph.nodes`, `schema.NODE_COLUMNS`.", NODE_COLUMNS),
    ("Edges", "`ExecutionGraph.edges`, `schema.EDGE_COLUMNS`.", EDGE_COLUMNS),
    ("Predictions", "What `predict.py` adds to the nodes in `nodes.parquet`, `schema.PREDICTION_COLUMNS`.",
     PREDICTION_COLUMNS),
)  # fmt: skip


def column_page() -> str:
    """The whole page."""
    return "\n".join(
        [INTRODUCTION, *(f"## {title}\n\n{about}\n\n{_table(columns)}\n" for title, about, columns in TABLES)]
    )


def _table(columns: tuple[Column, ...]) -> str:
    rows = [f"| `{c.name}` | {c.dtype} | {c.unit} | {_record(c.meaning)} |" for c in columns]
    return "\n".join(["| column | dtype | unit | meaning |", "|---|---|---|---|", *rows])


def _record(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
