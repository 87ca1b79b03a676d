"""PyTorch execution traces: schema 1.0.1 (flat) and 1.0.2 and later (attribute lists) -> one list of nodes.

An execution trace names every op, its shapes, values and the ids of its tensors, and no time at all (some tools add
one; it is not used). Chakra's own formats are refused with one sentence.
"""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from msgspec import Raw

from gnnperf.core import EventKind, InputError
from gnnperf.trace.assembly import Assembled
from gnnperf.trace.columns import coded, json_column
from gnnperf.trace.kineto import Head, decoded, no_collection

PSEUDO_NODES = re.compile(r"\[pytorch\|profiler\|execution_(?:graph|trace)\|(?:thread|process)\]")
SCHEMA = re.compile(r"\d{1,4}\.\d{1,4}\.\d{1,4}(?:-chakra(?:\.\d{1,4}){3})?", re.ASCII)
SCHEMAS = "execution trace schema 1.0.1, 1.0.2 and later, 1.1.x"
REMEDY = "give the PyTorch execution trace (JSON with schema and nodes) it was made from"


class _Attribute(msgspec.Struct, gc=False):
    name: str = ""
    value: Raw = Raw(b"null")


class _Values(msgspec.Struct, gc=False):
    values: list[Any] = []
    shapes: list[Any] = []
    types: list[Any] = []


class _Node(msgspec.Struct, gc=False):
    """A node of any schema: 1.0.1 has the flat keys, later ones `attrs`, `inputs` and `outputs` as objects."""

    name: str = ""
    id: int = -1
    rf_id: int | None = None
    tid: int | None = None
    parent: int | None = None
    ctrl_deps: int | list[int] | None = None
    inputs: _Values | list[Any] | None = None
    outputs: _Values | list[Any] | None = None
    input_shapes: list[Any] = []
    input_types: list[Any] = []
    output_types: list[Any] = []
    attrs: list[_Attribute] = []


@dataclass(frozen=True)
class Node:
    """One op of an execution trace."""

    id: int
    parent: int  # id of the op around it
    rf_id: int  # number of the recorded function, in order of start over all threads
    thread: int  # small number of the thread, from 1
    name: str
    values: list[Any]  # one per argument, as shapes and types; a tensor's value begins with its id
    shapes: list[Any]
    types: list[Any]
    outputs: list[Any]  # one per result
    output_types: list[Any]


@dataclass(frozen=True)
class ExecutionTrace:
    """One rank's execution trace: nodes by `rf_id`, and the schema it was written in."""

    name: str
    schema: str
    nodes: tuple[Node, ...]


@no_collection()
def read_execution_trace(head: Head, name: str) -> ExecutionTrace:
    """Nodes of an execution trace; refuses an unknown schema, and nodes that cannot be read."""
    stated = SCHEMA.match(str(decoded(head.schema, str | float) or ""))
    if stated is None:
        raise InputError("is JSON with nodes, but states no schema", where=name, allowed=SCHEMAS)
    raw = decoded(head.nodes, list[_Node])
    if raw is None:  # one by one: a node with a field of a wrong type costs that node only
        raw = [node for one in decoded(head.nodes, list[Raw]) or [] if (node := decoded(one, _Node)) is not None]
    nodes = [_node(n) for n in raw if not PSEUDO_NODES.fullmatch(n.name)]
    if not nodes:
        raise InputError("holds no op that can be read", where=name, allowed=SCHEMAS)
    return ExecutionTrace(name, stated[0], tuple(sorted(nodes, key=lambda n: n.rf_id)))


def _node(raw: _Node) -> Node:
    attrs = {a.name: a.value for a in raw.attrs if a.name in ("rf_id", "tid")}
    inputs, outputs = raw.inputs, raw.outputs
    if not isinstance(inputs, _Values):
        inputs = _Values(inputs or [], raw.input_shapes, raw.input_types)
    if not isinstance(outputs, _Values):
        outputs = _Values(outputs or [], [], raw.output_types)
    control = raw.ctrl_deps[0] if isinstance(raw.ctrl_deps, list) and raw.ctrl_deps else raw.ctrl_deps
    parent = raw.parent if raw.parent is not None else control
    return Node(
        raw.id, parent if isinstance(parent, int) else -1, _integer(raw.rf_id, attrs.get("rf_id")),
        _integer(raw.tid, attrs.get("tid")), raw.name, inputs.values, inputs.shapes, inputs.types,
        outputs.values, outputs.types,
    )  # fmt: skip


def _integer(flat: int | None, attribute: Raw | None) -> int:
    stated = decoded(attribute, int) if flat is None and attribute is not None else flat
    return -1 if stated is None else int(stated)


def is_execution_trace(start: bytes) -> bool:
    """Whether the first kilobytes of a JSON text are those of an execution trace."""
    return re.search(rb'^\s*\{[^{\[]*"schema"\s*:\s*"\d', start) is not None


def refuse_chakra(start: bytes, name: str) -> None:
    """Refuse Chakra protobuf, concatenated Chakra JSON and Chakra workload graphs, each with its sentence."""
    if name.lower().endswith((".et", ".et.gz")) or (start[:1] not in (b"{", b"[", b"\xef") and b"chakra" in start):
        raise InputError("is a Chakra protobuf file, which is not read", where=name, remedy=REMEDY)
    if re.match(rb'\s*\{\s*"attr"\s*:', start):
        raise InputError("is a file of concatenated Chakra JSON objects, which is not read", where=name, remedy=REMEDY)
    if re.match(rb'\s*\{\s*"workload_graph"\s*:', start):
        raise InputError("is a Chakra workload graph without op shapes, which is not read", where=name, remedy=REMEDY)


# Execution trace nodes -> rows of the same rank's TraceTable: shapes, values, and which op feeds which.
#
# The two profilers number ops alike but not equally: `rf_id` is `Record function id`, or `Ev Idx` or `External id`
# plus an offset that holds for one thread, or for a stretch of it. Offsets are found by voting of names and checked by
# names; the share of nodes that agree is reported.
#
# An execution trace of one step, as the recorder writes it, is found once in every step of the Kineto trace:
#
#     execution trace        |step|                  offset 1
#     Kineto     |step|step|step|                    offset 2 ...

MAX_VOTERS = 64
MIN_VOTES = 3  # a stretch of this many ops with one offset is believed
MIN_REPEATED_SHARE = 0.9  # of the nodes found first: a repetition finds as many again


@dataclass(frozen=True)
class Matched:
    """Rows of the execution trace's nodes."""

    # for each time the trace is found in the table: node id -> row of the table
    repetitions: tuple[dict[int, int], ...]
    key: str  # which of the table's numbers they were matched by
    share: float  # matched nodes / all nodes, where most are matched


def match(table: Assembled, trace: ExecutionTrace) -> Matched:
    """The row of each node, by the numbering that agrees best."""
    host = np.flatnonzero(table.is_kind(EventKind.CPU_OP, EventKind.ANNOTATION))
    names = table.columns["name"]
    texts = [names.categories[c] for c in names.codes[host]]
    numberings = {
        "Record function id": table.side["record_function"], "Ev Idx": table.side["event_index"],
        "External id": table.columns["external_id"],
    }  # fmt: skip
    best = Matched((), "none", 0.0)
    for key, numbers in numberings.items():
        if (numbers[host] > 0).any():
            result = _repetitions(numbers[host].tolist(), texts, host.tolist(), trace)
            share = len(result[0]) / len(trace.nodes)
            if share > best.share:
                best = Matched(tuple(result), key, share)
    return best


def _repetitions(numbers: list[int], texts: list[str], rows: list[int], trace: ExecutionTrace) -> list[dict[int, int]]:
    """node id -> row, once for every time the trace is found; at least one, which may be empty."""
    at = {number: (text, row) for number, text, row in zip(numbers, texts, rows, strict=True) if number >= 0}
    taken: set[int] = set()
    result = [_by_offsets(at, trace, taken)]
    while True:
        again = _by_offsets(at, trace, taken)
        if not again or len(again) < MIN_REPEATED_SHARE * len(result[0]):
            return result
        result.append(again)


def _by_offsets(at: dict[int, tuple[str, int]], trace: ExecutionTrace, taken: set[int]) -> dict[int, int]:
    """Match thread by thread: vote for an offset, match what agrees, repeat with what is left; adds to `taken`."""
    numbers_of: dict[str, list[int]] = defaultdict(list)
    for number, (text, _) in at.items():
        if number not in taken:
            numbers_of[text].append(number)
    result: dict[int, int] = {}
    near: int | None = None  # threads of one step have nearly the same offset
    for thread in sorted({n.thread for n in trace.nodes}):
        left = [n for n in trace.nodes if n.thread == thread]
        while left:
            offset = _vote(left, numbers_of, taken, near)
            numbered = [] if offset is None else [(n, n.rf_id + offset) for n in left]
            agreeing = [(n, k) for n, k in numbered if k in at and k not in taken and at[k][0] == n.name]
            if len(agreeing) < MIN_VOTES:
                break
            near = offset if near is None else near
            for node, number in agreeing:
                result[node.id] = at[number][1]
                taken.add(number)
            left = [n for n in left if n.id not in result]
    return result


def _vote(nodes: list[Node], numbers_of: dict[str, list[int]], taken: set[int], near: int | None) -> int | None:
    """The offset that most of the rarest names agree on (frequent names would pair with everything).

    Of equals the one that is nearest to `near`, or the first: the steps of a run all get the same votes.
    """
    known = [n for n in nodes if n.name in numbers_of]
    votes: Counter[int] = Counter()
    for node in sorted(known, key=lambda n: len(numbers_of[n.name]))[:MAX_VOTERS]:
        votes.update(number - node.rf_id for number in numbers_of[node.name] if number not in taken)
    return min(votes, key=lambda o: (-votes[o], o if near is None else abs(o - near)), default=None)


def fill_shapes(table: Assembled, trace: ExecutionTrace, matched: Matched) -> Assembled:
    """The table with shapes, dtypes and values of matched ops that had none."""
    texts: dict[str, list[bytes | None]] = {}
    for column, describe in (("input_dims", _dims), ("input_types", lambda node: [_type(str(t)) for t in node.types]),
                             ("input_values", _values)):  # fmt: skip
        known = table.columns[column]
        texts[column] = [known.categories[c].encode() if c >= 0 else None for c in known.codes]
        for node in trace.nodes:
            rows = [result[node.id] for result in matched.repetitions if node.id in result]
            given = msgspec.json.encode(describe(node)) if rows and node.types else None
            for row in rows:
                texts[column][row] = texts[column][row] or given
    columns = table.columns | {c: json_column(*coded(values), c, table.dropped) for c, values in texts.items()}
    return replace(table, columns=columns)


def _dims(node: Node) -> list[Any]:
    """Shapes as Kineto writes them: a tensor's shape, a list of shapes for a tensor list, [] for the rest."""
    return [s if "Tensor(" in str(t) else [] for s, t in zip(node.shapes, node.types, strict=False)]


KINETO_TYPES = {"Int": "Scalar", "Double": "Scalar", "Bool": "Scalar", "Float": "Scalar"}


def _type(text: str) -> str:
    if text.startswith("Tensor("):
        return text[len("Tensor(") : -1]
    if text.startswith("GenericList"):
        return "TensorList" if text.startswith("GenericList[Tensor") else "ScalarList"
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
    rows = sorted((row[a], row[b]) for row in matched.repetitions for a, b in pairs if a in row and b in row)
    array = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return pd.DataFrame({"producer_event": array[:, 0], "consumer_event": array[:, 1]})


def _tensors(values: list[Any], types: list[Any]) -> frozenset[int]:
    """Ids of the tensors among these arguments; lists of tensors included."""
    result: list[int] = []
    for value, kind in zip(values, types, strict=False):
        if str(kind).startswith("Tensor(") and isinstance(value, list) and value and isinstance(value[0], int):
            result.append(value[0])
        elif str(kind).startswith("GenericList[Tensor") and isinstance(value, list):
            result += [v[0] for v in value if isinstance(v, list) and v and isinstance(v[0], int)]
    return frozenset(result)
