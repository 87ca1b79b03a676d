"""The grammar of `whatif=[...]`: a list of edits, made one after the other.

    whatif=[{latency:{op:aten::mm,factor:0.5}},{straggler:{rank:1,factor:1.3}},{stall:{us:2000}},{batch:{factor:2}}]

An entry names one edit and its settings. The names are the fields of `WhatIf`, the settings those of the edit's
dataclass, which checks them. On the command line an entry is written without braces:

    batch=2x                             the first setting of the edit; 2x is the number 2
    latency=op:aten::mm,factor:0.5       settings by name
    fuse                                 an edit without settings
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from gnnperf.core import InputError, require_numbers
from gnnperf.whatif import (
    Block,
    ChangeCluster,
    ChangeDevice,
    ChangeDtype,
    ChangeLink,
    CompressMessages,
    DeclarePause,
    Edit,
    FuseElementwise,
    FuseHorizontally,
    InputStall,
    MoveToStream,
    OpLatency,
    RepeatCalls,
    ResizeTables,
    ScaleBatch,
    ScaleSequence,
    Straggler,
    WaitLater,
    WorldSize,
)

KEY = "whatif"
EXAMPLE = "whatif=[{latency:{op:aten::mm,factor:0.5}},{straggler:{rank:1,factor:1.3}}]"


@dataclass(frozen=True)
class WhatIf:
    """One entry of the list: exactly one of these is given.

    Attributes:
        latency: an op takes another time.
        straggler: one rank works slower.
        stall: the ranks wait for data before each step.
        pause: one rank waits at a place of each step.
        batch: every rank's batch is larger or smaller.
        sequence: sequences are longer or shorter.
        dtype: ops of one dtype become ops of another.
        fuse: runs of elementwise ops become one op each.
        horizontal: equal ops that do not depend on each other become one batched op.
        repeat: calls of an op run several times.
        compress: messages of collectives go compressed.
        world_size: more or fewer data-parallel ranks.
        block: collectives are waited for where they are issued.
        overlap: collectives are waited for where they are needed.
        stream: calls of an op run on a stream of their own.
        device: ranks run on another device.
        link: messages go over other links.
        cluster: the ranks are in another cluster.
        table_size: embedding tables have more or fewer rows or columns.
    """

    latency: OpLatency | None = None
    straggler: Straggler | None = None
    stall: InputStall | None = None
    pause: DeclarePause | None = None
    batch: ScaleBatch | None = None
    sequence: ScaleSequence | None = None
    dtype: ChangeDtype | None = None
    fuse: FuseElementwise | None = None
    horizontal: FuseHorizontally | None = None
    repeat: RepeatCalls | None = None
    compress: CompressMessages | None = None
    world_size: WorldSize | None = None
    block: Block | None = None
    overlap: WaitLater | None = None
    stream: MoveToStream | None = None
    device: ChangeDevice | None = None
    link: ChangeLink | None = None
    cluster: ChangeCluster | None = None
    table_size: ResizeTables | None = None


def read_edits(entries: Sequence[Any]) -> tuple[Edit, ...]:
    """The edits of a `whatif` list; an entry that is an edit already stays."""
    return tuple(_edit(entry, f"{KEY}[{place}]") for place, entry in enumerate(entries))


def edit_settings() -> dict[str, tuple[str, ...]]:
    """Edit -> its settings, the first of which `parse_edit` takes without a name."""
    return {name: tuple(f.name for f in fields(_given(hint))) for name, hint in typing.get_type_hints(WhatIf).items()}


def written(edit: Edit) -> str:
    """An edit as `parse_edit` reads it, e.g. batch=factor:2; of another callable the name of its class."""
    names = {_given(hint): name for name, hint in typing.get_type_hints(WhatIf).items()}
    name = names.get(type(edit))
    if name is None:
        return type(edit).__name__
    settings = fields(edit)  # type: ignore[arg-type]  # every edit of the grammar is a dataclass
    given = {f.name: getattr(edit, f.name) for f in settings if getattr(edit, f.name) != f.default}
    return f"{name}={','.join(f'{key}:{value}' for key, value in given.items())}" if given else name


def parse_edit(text: str) -> dict[str, dict[str, int | float | str]]:
    """An entry of the `whatif` list from `NAME`, `NAME=VALUE` or `NAME=SETTING:VALUE,...`.

    Raises:
        InputError: no such edit, or no such setting.
    """
    name, has_value, value = text.partition("=")
    known = edit_settings()
    if name not in known:
        raise _unknown(name, known, f"--what-if {text}", "edit")
    if not has_value:
        return {name: {}}
    first, *_ = settings = known[name]
    parts = value.split(",")
    if parts[0].partition(":")[0] not in settings:
        return {name: {first: _value(value)}}
    pairs = [part.partition(":") for part in parts]
    return {name: {key: _value(given) for key, _, given in pairs}}


def _value(text: str) -> int | float | str:
    """A number, a factor such as 2x, or text."""
    plain = text.removesuffix("x") if text[:1].isdigit() else text
    for kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            continue
    return text


def _edit(entry: Any, where: str) -> Edit:
    if callable(entry):
        return entry  # an edit, not its description
    classes = {name: _given(hint) for name, hint in typing.get_type_hints(WhatIf).items()}
    if not isinstance(entry, Mapping) or len(entry) != 1:
        raise InputError(f"cannot read {entry!r}", where=where, allowed=f"one edit with its settings, as in {EXAMPLE}")
    ((name, settings),) = entry.items()
    if name not in classes:
        raise _unknown(str(name), classes, where, "edit")
    if not isinstance(settings, Mapping):
        raise InputError(f"bad value {settings!r}", where=f"{where}.{name}", allowed=_form(name, classes[name]))
    return _made(classes[name], settings, f"{where}.{name}")


def _made(kind: type, settings: Mapping[Any, Any], where: str) -> Edit:
    require_numbers(settings, where)
    hints = typing.get_type_hints(kind)
    for key, value in settings.items():
        if key not in hints:
            raise _unknown(str(key), hints, where, "setting")
        if not _fits(value, hints[key]):
            raise InputError(f"bad value {value!r}", where=f"{where}.{key}", allowed=_words(hints[key]))
    missing = [f.name for f in fields(kind) if f.default is dataclasses.MISSING and f.name not in settings]
    if missing:
        raise InputError(f"{missing[0]} is required", where=where, allowed=_form(where.rpartition(".")[2], kind))
    try:
        edit: Edit = kind(**{key: tuple(v) if isinstance(v, list) else v for key, v in settings.items()})
    except InputError as error:
        raise InputError(f"{error.where}: {error.what}", where=where, allowed=error.allowed) from error
    return edit


def _given(hint: Any) -> type:
    """`Straggler | None` -> Straggler."""
    return next(arg for arg in typing.get_args(hint) if arg is not type(None))  # type: ignore[no-any-return]


def _kinds(hint: Any) -> tuple[Any, ...]:
    """`int | None` -> int, None; `tuple[int, ...]` stays whole."""
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of the type; a whole number is a number, true is none, a list holds one kind."""
    kinds = _kinds(hint)
    if isinstance(value, list):
        inner = [typing.get_args(kind)[0] for kind in kinds if typing.get_origin(kind) is tuple]
        return any(all(_fits(one, kind) for one in value) for kind in inner)
    plain = tuple(kind for kind in kinds if typing.get_origin(kind) is None)
    if isinstance(value, bool):
        return bool in plain
    return isinstance(value, plain) or (float in plain and isinstance(value, int))


def _unknown(result: str, known: Iterable[str], where: str, what: str) -> InputError:
    near = difflib.get_close_matches(result, list(known), n=1, cutoff=0.4)
    remedy = f"did you mean {near[0]!r}?" if near else ""
    return InputError(f"unknown {what} {result!r}", where=where, allowed=", ".join(known), remedy=remedy)


def _form(name: str, kind: type) -> str:
    settings = ",".join(f"{key}:{_words(hint)}" for key, hint in typing.get_type_hints(kind).items())
    return f"{{{name}:{{{settings}}}}}"


def _words(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    lists = {int: "a list of whole numbers", float: "a list of numbers", str: "a list of texts"}
    kinds = [kind for kind in _kinds(hint) if kind is not type(None)]
    return " or ".join(names[k] if typing.get_origin(k) is None else lists[typing.get_args(k)[0]] for k in kinds)
