"""A plan from a mapping, as conf/plan/resnet50.yaml holds it: every key and value checked."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from gnnperf.core import InputError
from gnnperf.generate.convolutional.plan import ConvolutionalPlan, Network, NetworkReplicas, Training

Section = TypeVar("Section", Network, Training, NetworkReplicas)
SECTIONS = ("name", "network", "training", "replicas", "source")


def convolutional_from(raw: Mapping[str, Any], where: str) -> ConvolutionalPlan:
    """The plan of a mapping of sections; `source` says where its numbers come from and is not used.

    Raises:
        InputError: an unknown or missing key, a wrong type, a value that cannot be.
    """
    for key in raw:
        if key not in SECTIONS:
            raise InputError(f"unknown key {key!r}", where=where, allowed=", ".join(SECTIONS))
    return ConvolutionalPlan(
        str(raw.get("name", where)),
        _section(Network, raw.get("network"), f"{where}.network"),
        _section(Training, raw.get("training"), f"{where}.training"),
        _section(NetworkReplicas, raw.get("replicas", {}), f"{where}.replicas"),
    )


def _section(kind: type[Section], raw: object, where: str) -> Section:
    hints = typing.get_type_hints(kind)
    if not isinstance(raw, Mapping):
        raise InputError(f"bad value {raw!r}", where=where, allowed=f"a mapping of {', '.join(hints)}")
    for key in raw:
        if key not in hints:
            raise InputError(f"unknown key {key!r}", where=where, allowed=", ".join(hints))
    for field in dataclasses.fields(kind):
        if field.default is dataclasses.MISSING and field.name not in raw:
            raise InputError(f"{field.name} is required", where=where)
    result: dict[str, Any] = {str(key): _value(value, hints[key], f"{where}.{key}") for key, value in raw.items()}
    return kind(**result)


def _value(value: object, hint: Any, where: str) -> object:
    if typing.get_origin(hint) is tuple:
        return _numbers(value, where)
    if issubclass(hint, StrEnum):
        if not isinstance(value, str) or value not in list(hint):
            raise InputError(f"bad value {value!r}", where=where, allowed=", ".join(hint))
        return hint(value)
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    fits = isinstance(value, bool) is (hint is bool)
    if not fits or not (isinstance(value, hint) or (hint is float and isinstance(value, int))):
        raise InputError(f"bad value {value!r}", where=where, allowed=words[hint])
    return hint(value)


def _numbers(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(type(n) is int for n in value):
        raise InputError(f"bad value {value!r}", where=where, allowed="a list of whole numbers")
    return tuple(value)
