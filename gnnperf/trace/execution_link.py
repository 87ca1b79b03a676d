"""Execution trace nodes -> rows of the same rank's TraceTable: shapes, values, and which op feeds which.

The two profilers number ops alike but not equally: `rf_id` is `Record function id`, or `Ev Idx` or `External id`
plus an offset that holds for one thread, or for a stretch of it. Offsets are found by voting of names and checked by
names; the share of nodes that agree is reported.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from gnnperf.schema import EventKind
from gnnperf.trace.assemble import Assembled
from gnnperf.trace.columns import coded, json_column
from gnnperf.trace.execution_trace import ExecutionTrace, Node

MAX_VOTERS = 64
MIN_VOTES = 3  # a stretch of this many ops with one offset is believed


@dataclass(frozen=True)
class Matched:
    """Rows of the execution trace's nodes.

    Attributes:
        row: node id -> row of the table.
        key: which of the table's numbers they were matched by.
        share: matched nodes / all nodes.
    """

    row: dict[int, int]
    key: str
    share: float


def match(table: Assembled, trace: ExecutionTrace) -> Matched:
    """The row of each node, by the numbering that agrees best."""
    host = np.flatnonzero(table.is_kind(EventKind.CPU_OP, EventKind.ANNOTATION))
    names = table.columns["name"]
    texts = [names.categories[c] for c in names.codes[host]]
    numberings = {
        "Record function id": table.side["record_function"], "Ev Idx": table.side["event_index"],
        "External id": table.columns["external_id"],
    }  # fmt: skip
    best = Matched({}, "none", 0.0)
    for key, numbers in numberings.items():
        if (numbers[host] > 0).any():
            row = _by_offsets(numbers[host].tolist(), texts, host.tolist(), trace)
            if len(row) / len(trace.nodes) > best.share:
                best = Matched(row, key, len(row) / len(trace.nodes))
    return best


def _by_offsets(numbers: list[int], texts: list[str], rows: list[int], trace: ExecutionTrace) -> dict[int, int]:
    """Match thread by thread: vote for an offset, match what agrees, repeat with what is left."""
    at = {number: (text, row) for number, text, row in zip(numbers, texts, rows, strict=True) if number >= 0}
    numbers_of: dict[str, list[int]] = defaultdict(list)
    for number, (text, _) in at.items():
        numbers_of[text].append(number)
    found: dict[int, int] = {}
    taken: set[int] = set()
    for thread in sorted({n.thread for n in trace.nodes}):
        left = [n for n in trace.nodes if n.thread == thread]
        while left:
            offset = _vote(left, numbers_of, taken)
            agreeing = [n for n in left if offset is not None and _agrees(n, offset, at, taken)]
            if len(agreeing) < MIN_VOTES:
                break
            for node in agreeing:
                found[node.id] = at[node.rf_id + offset][1]  # type: ignore[operator]
                taken.add(node.rf_id + offset)  # type: ignore[operator]
            left = [n for n in left if n.id not in found]
    return found


def _vote(nodes: list[Node], numbers_of: dict[str, list[int]], taken: set[int]) -> int | None:
    """The offset that most of the rarest names agree on; frequent names would pair with everything."""
    known = [n for n in nodes if n.name in numbers_of]
    votes: Counter[int] = Counter()
    for node in sorted(known, key=lambda n: len(numbers_of[n.name]))[:MAX_VOTERS]:
        votes.update(number - node.rf_id for number in numbers_of[node.name] if number not in taken)
    return votes.most_common(1)[0][0] if votes else None


def _agrees(node: Node, offset: int, at: dict[int, tuple[str, int]], taken: set[int]) -> bool:
    number = node.rf_id + offset
    return number in at and number not in taken and at[number][0] == node.name


def fill_shapes(table: Assembled, trace: ExecutionTrace, matched: Matched) -> Assembled:
    """The table with shapes, dtypes and values of matched ops that had none."""
    texts: dict[str, list[bytes | None]] = {}
    for column, describe in (("input_dims", _dims), ("input_types", _types), ("input_values", _values)):
        known = table.columns[column]
        texts[column] = [known.categories[c].encode() if c >= 0 else None for c in known.codes]
        for node in trace.nodes:
            row = matched.row.get(node.id)
            if row is not None and texts[column][row] is None and node.types:
                texts[column][row] = msgspec.json.encode(describe(node))
    columns = table.columns | {c: json_column(*coded(values)) for c, values in texts.items()}
    return replace(table, columns=columns)


def _dims(node: Node) -> list[Any]:
    """Shapes as Kineto writes them: a tensor's shape, a list of shapes for a tensor list, [] for the rest."""
    return [s if "Tensor(" in str(t) else [] for s, t in zip(node.shapes, node.types, strict=False)]


KINETO_TYPES = {"Int": "Scalar", "Double": "Scalar", "Bool": "Scalar", "Float": "Scalar"}


def _types(node: Node) -> list[str]:
    return [_type(str(t)) for t in node.types]


def _type(text: str) -> str:
    if text.startswith("Tensor("):
        return text[len("Tensor(") : -1]
    if text.startswith("GenericList[Tensor"):
        return "TensorList"
    if text.startswith("GenericList"):
        return "ScalarList"
    return KINETO_TYPES.get(text, "")


MAX_LIST = 256  # numbers of one argument; longer lists are left out


def _values(node: Node) -> list[str]:
    """Scalars and lists of scalars as text, as Kineto writes them; "" for tensors, strings and objects."""
    return [_value(v, _type(str(t))) for v, t in zip(node.values, node.types, strict=False)]


def _value(value: Any, kind: str) -> str:
    if kind == "Scalar" and isinstance(value, (bool, int, float)):
        return str(value)
    numbers = kind == "ScalarList" and isinstance(value, list) and len(value) <= MAX_LIST
    return str(value) if numbers and all(isinstance(v, (bool, int, float)) for v in value) else ""


def feeds(trace: ExecutionTrace, matched: Matched) -> pd.DataFrame:
    """[num_feeds] (producer_event, consumer_event): which op's tensor an op reads.

    The innermost op that last wrote a tensor feeds the innermost op that reads it. An op whose child reads or writes
    the same tensor passes it on and is neither.
    """
    reads = {n.id: _tensors(n.values, n.types) for n in trace.nodes}
    writes = {n.id: _tensors(n.outputs, n.output_types) for n in trace.nodes}
    for node in reversed(trace.nodes):  # children start after their parents
        if node.parent in reads:
            reads[node.parent] = reads[node.parent] - reads[node.id]
            writes[node.parent] = writes[node.parent] - writes[node.id]
    writer: dict[int, int] = {}
    pairs: set[tuple[int, int]] = set()
    for node in trace.nodes:
        pairs.update((writer[t], node.id) for t in reads[node.id] if t in writer and writer[t] != node.id)
        writer.update(dict.fromkeys(writes[node.id], node.id))
    rows = sorted((matched.row[a], matched.row[b]) for a, b in pairs if a in matched.row and b in matched.row)
    array = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return pd.DataFrame({"producer_event": array[:, 0], "consumer_event": array[:, 1]})


def _tensors(values: list[Any], types: list[Any]) -> frozenset[int]:
    """Ids of the tensors among these arguments; lists of tensors included."""
    found: list[int] = []
    for value, kind in zip(values, types, strict=False):
        if str(kind).startswith("Tensor(") and isinstance(value, list) and value and isinstance(value[0], int):
            found.append(value[0])
        elif str(kind).startswith("GenericList[Tensor") and isinstance(value, list):
            found += [v[0] for v in value if isinstance(v, list) and v and isinstance(v[0], int)]
    return frozenset(found)
