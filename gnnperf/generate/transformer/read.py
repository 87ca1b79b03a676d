"""A plan from a mapping, as conf/plan/NAME.yaml holds it: every key and value checked."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import NoneType
from typing import Any, TypeVar

from gnnperf.core import InputError
from gnnperf.generate.transformer.block import Block
from gnnperf.generate.transformer.compression import Compression
from gnnperf.generate.transformer.copies import Offload
from gnnperf.generate.transformer.plan import Experts, Parallelism, Schedule, Sharding, Transformer, TransformerPlan

Section = TypeVar("Section")
SECTIONS = ("name", "model", "block", "experts", "parallelism", "sharding", "schedule", "offload", "compression",
            "source")  # fmt: skip


def plan_from(raw: Mapping[str, Any], where: str) -> TransformerPlan:
    """The plan of a mapping of sections; `source` says where its numbers come from and is not used.

    Raises:
        InputError: an unknown or missing key, a wrong type, a value that cannot be, settings that do not go together.
    """
    _refuse_unknown(raw, SECTIONS, where)
    experts = raw.get("experts")
    return TransformerPlan(
        str(raw.get("name", where)),
        _section(Transformer, raw.get("model"), f"{where}.model"),
        _section(Parallelism, raw.get("parallelism", {}), f"{where}.parallelism"),
        _section(Schedule, raw.get("schedule"), f"{where}.schedule"),
        _section(Block, raw.get("block", {}), f"{where}.block"),
        None if experts is None else _section(Experts, experts, f"{where}.experts"),
        _section(Sharding, raw.get("sharding", {}), f"{where}.sharding"),
        _section(Offload, raw.get("offload", {}), f"{where}.offload"),
        _section(Compression, raw.get("compression", {}), f"{where}.compression"),
    )


def _section(kind: type[Section], raw: object, where: str) -> Section:
    hints = typing.get_type_hints(kind)
    if not isinstance(raw, Mapping):
        raise InputError(f"bad value {raw!r}", where=where, allowed=f"a mapping of {', '.join(hints)}")
    _refuse_unknown(raw, hints, where)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING and field.name not in raw:
            raise InputError(f"{field.name} is required", where=where)
    return kind(**{key: _value(value, hints[key], f"{where}.{key}") for key, value in raw.items()})


def _refuse_unknown(raw: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key in raw:
        if key not in known:
            near = difflib.get_close_matches(str(key), list(known), n=1)
            raise InputError(f"unknown key {key!r}", where=where, allowed=", ".join(known),
                             remedy=f"did you mean {near[0]!r}?" if near else "")  # fmt: skip


def _value(value: object, hint: Any, where: str) -> object:
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not NoneType]
    nullable = NoneType in typing.get_args(hint)
    if nullable and value is None:
        return None
    return _not_null(value, kinds[0], where, " or null" if nullable else "")


def _not_null(value: object, kind: type, where: str, or_null: str) -> object:
    if issubclass(kind, StrEnum):
        if not isinstance(value, str) or value not in list(kind):
            raise InputError(f"bad value {value!r}", where=where, allowed=", ".join(kind) + or_null)
        return kind(value)
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
    if isinstance(value, bool) != (kind is bool) or not fits:
        raise InputError(f"bad value {value!r}", where=where, allowed=words[kind] + or_null)
    return kind(value)  # type: ignore[call-arg]
