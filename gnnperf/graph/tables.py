"""Small tools to build node and edge tables column by column, without a Python loop over rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.core import Evidence, Relation, schema

_NODE_DEFAULTS: dict[str, object] = {
    "rank": -1, "step": -1, "thread": -1, "device": -1, "stream": -1, "ordinal": 0, "num_siblings": 1,
    "flops": np.nan, "bytes": np.nan, "message_bytes": np.nan, "group_size": -1, "group_first": -1,
    "group_stride": -1, "registers": -1, "shared_bytes": -1, "occupancy_percent": -1, "event_id": -1, "content_key": 0,
    "start_us": np.nan, "latency_us": np.nan, "blocked_us": 0.0, "node_id": -1, "opened_ops": 0, "opened_ranges": 0,
}  # fmt: skip


def node_table(num_nodes: int, **columns: object) -> pd.DataFrame:
    """[num_nodes] table with schema.NODE_COLUMNS; columns not given are unknown.

    A column with one value is stored once: it cannot be written, but replaced (`assign`) or joined.
    """
    data: dict[str, object] = {}
    for column in schema.NODE_COLUMNS:
        value = columns.pop(column.name, _NODE_DEFAULTS.get(column.name))
        if column.dtype == "category":
            data[column.name] = _categorical(value, num_nodes)
        elif isinstance(value, np.ndarray):
            data[column.name] = value.astype(column.dtype, copy=False)
        else:
            data[column.name] = np.broadcast_to(np.array(value, dtype=column.dtype), num_nodes)
    assert not columns, f"unknown node columns {sorted(columns)}"
    return pd.DataFrame(data, copy=False)


def _categorical(value: object, num_nodes: int) -> "pd.Categorical[Any]":
    """A categorical from a categorical, an array of strings (None unknown), or one value for all rows."""
    if isinstance(value, pd.Categorical):
        return value
    if isinstance(value, np.ndarray):
        codes, texts = pd.factorize(value, sort=True)
        return schema.categorical(codes, texts.tolist())
    if value is None:
        return schema.categorical(np.full(num_nodes, -1, dtype=np.int8), ())
    return schema.categorical(np.zeros(num_nodes, dtype=np.int8), (str(value),))


def concat_tables(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """All rows; categories are merged rather than turned into strings."""
    if len(tables) == 1:
        return tables[0].reset_index(drop=True)
    data: dict[object, object] = {}
    for named in zip(*(table.items() for table in tables), strict=True):  # faster than a look-up per column
        name, parts = named[0][0], [part for _, part in named]
        assert all(other == name for other, _ in named)
        if isinstance(parts[0].dtype, pd.CategoricalDtype):
            data[name] = schema.merged(parts)
        else:
            data[name] = np.concatenate([p.to_numpy() for p in parts])
    return pd.DataFrame(data, copy=False)


def text(word: str) -> np.ndarray:
    """[] a text for `np.where` and `np.full`, which make a new one for every row from a plain `str`."""
    return np.array(str(word), dtype=object)


def unique_pairs(pairs: np.ndarray) -> np.ndarray:
    """[2, n] the different columns of pairs [2, m] of numbers that are not negative, sorted; of one number each."""
    if not pairs.size:
        return pairs
    width = pairs[1].max() + 1
    numbers = np.sort(pairs[0] * width + pairs[1])  # `np.unique` takes ten times as long where many differ
    return np.stack(np.divmod(numbers[np.r_[True, numbers[1:] != numbers[:-1]]], width))


def combined(codes: Sequence[np.ndarray]) -> np.ndarray:
    """[n] one number per combination of codes [n] from -1 on, which sorts as they do."""
    number, most = np.zeros(len(codes[0]), dtype=np.int64), 1
    for one in codes:
        width = int(one.max(initial=-1)) + 2
        if most * width > np.iinfo(np.int64).max:
            number, most = np.unique(number, return_inverse=True)[1], len(number)
        number, most = number * width + one + 1, most * width
    return number


def content_keys(table: pd.DataFrame, columns: tuple[str, ...]) -> np.ndarray:
    """[num_nodes] int64 hash of these columns' texts and numbers; equal content gives equal keys in any run."""
    key = np.zeros(len(table), dtype=np.uint64)
    for name in columns:
        series = table[name]
        if isinstance(series.dtype, pd.CategoricalDtype):
            texts = np.array([*schema.categories_of(series), ""], dtype=object)
            value = pd.util.hash_array(texts, categorize=False)[schema.codes_of(series)]
        else:
            value = pd.util.hash_array(series.to_numpy())
        key = (key * np.uint64(1_000_003)) ^ value
    return key.view(np.int64)


@dataclass
class EdgeList:
    """Edges collected as arrays; `table()` gives schema.EDGE_COLUMNS."""

    parts: list[tuple[np.ndarray, np.ndarray, str, str, str | None]] = field(default_factory=list)

    def add(
        self, src: np.ndarray, dst: np.ndarray, relation: Relation, lag_class: str | None = None,
        evidence: Evidence = Evidence.ORDER,
    ) -> None:  # fmt: skip
        """Add edges src[i] -> dst[i] of one relation."""
        ends = np.asarray(src, np.int64), np.asarray(dst, np.int64)
        self.parts.append((*ends, str(relation), str(evidence), lag_class))

    def shifted(self, offset: int) -> "EdgeList":
        """The same edges with all node ids moved by `offset`."""
        return EdgeList([(s + offset, d + offset, r, e, c) for s, d, r, e, c in self.parts])

    def table(self) -> pd.DataFrame:
        """[num_edges] table; `lag_us` is NaN until measured."""
        counts = [len(p[0]) for p in self.parts]
        columns = {
            "relation": _repeat([p[2] for p in self.parts], counts),
            "evidence": _repeat([p[3] for p in self.parts], counts),
            "lag_class": _repeat([p[4] for p in self.parts], counts),
        }
        src, dst = (np.concatenate([np.zeros(0, np.int64), *(p[i] for p in self.parts)]) for i in (0, 1))
        return pd.DataFrame({"src": src, "dst": dst, **columns, "lag_us": np.full(len(src), np.nan)}, copy=False)


def _repeat(values: Sequence[str | None], counts: list[int]) -> pd.Categorical:
    categories = sorted({v for v in values if v is not None})
    code_of = {v: i for i, v in enumerate(categories)}
    codes = np.repeat(np.array([code_of.get(v, -1) if v is not None else -1 for v in values], np.int8), counts)
    return schema.categorical(codes, categories)
