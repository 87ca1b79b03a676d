"""PyTorch execution traces: schema 1.0.1 (flat) and 1.0.2 and later (attribute lists) -> one list of nodes.

An execution trace names every op, its shapes, values and the ids of its tensors, and no time at all (some tools add
one; it is not used). Chakra's own formats are refused with one sentence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from gnnperf.core import InputError
from gnnperf.trace.kineto import Head, decoded

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
    """One op of an execution trace.

    Attributes:
        id, parent: node numbers.
        rf_id: number of the recorded function, in order of start over all threads.
        thread: small number of the thread, from 1.
        values, shapes, types: one entry per argument; a tensor's value begins with its id.
        outputs, output_types: the same of what it returns.
    """

    id: int
    parent: int
    rf_id: int
    thread: int
    name: str
    values: list[Any]
    shapes: list[Any]
    types: list[Any]
    outputs: list[Any]
    output_types: list[Any]


@dataclass(frozen=True)
class ExecutionTrace:
    """One rank's execution trace: nodes by `rf_id`, and the schema it was written in."""

    name: str
    schema: str
    nodes: tuple[Node, ...]


def read_execution_trace(head: Head, name: str) -> ExecutionTrace:
    """Nodes of an execution trace.

    Raises:
        InputError: an unknown schema, or nodes that cannot be read.
    """
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
    inputs = (
        raw.inputs if isinstance(raw.inputs, _Values) else _Values(raw.inputs or [], raw.input_shapes, raw.input_types)
    )
    outputs = raw.outputs if isinstance(raw.outputs, _Values) else _Values(raw.outputs or [], [], raw.output_types)
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
    """Refuse formats that are known and not read, each with its sentence.

    Raises:
        InputError: Chakra protobuf, concatenated Chakra JSON, a Chakra workload graph.
    """
    if name.lower().endswith((".et", ".et.gz")) or (start[:1] not in (b"{", b"[", b"\xef") and b"chakra" in start):
        raise InputError("is a Chakra protobuf file, which is not read", where=name, remedy=REMEDY)
    if re.match(rb'\s*\{\s*"attr"\s*:', start):
        raise InputError("is a file of concatenated Chakra JSON objects, which is not read", where=name, remedy=REMEDY)
    if re.match(rb'\s*\{\s*"workload_graph"\s*:', start):
        raise InputError("is a Chakra workload graph without op shapes, which is not read", where=name, remedy=REMEDY)
