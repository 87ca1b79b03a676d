"""YAML of users: plain values only, checked before anything is built from them.

A user's file never reaches Hydra or OmegaConf, which resolve interpolations and instantiate classes. This loader
refuses what a specification does not need: tags, anchors, aliases, merge keys, duplicate keys, interpolations, keys
of Hydra, several documents, deep nesting, many values, control characters and numbers that are not finite.
"""

import math
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gnnperf.core import InputError, untrusted

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 24
MAX_VALUES = 100_000
MAX_DIGITS = 40  # of a whole number
INTERPOLATION = "${"
CODE_KEYS = ("defaults", "_target_", "_partial_", "_args_", "_recursive_", "_convert_")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
PLAIN_TAGS = ("str", "int", "float", "bool", "null")
PREFIX = "tag:yaml.org,2002:"
ALLOWED = "mappings, lists, text, numbers, true, false and null"
_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER = yaml.SafeLoader("")


def read_yaml(path: Path) -> dict[str, object]:
    """The mapping in a YAML file; refuses other content, more than plain values, and large or irregular files."""
    with untrusted.reading(path, remedy="check path and permissions"):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError("is not a file", where=str(path), remedy="name a YAML file")
        if status.st_size > MAX_FILE_BYTES:
            raise InputError(f"file has more than {MAX_FILE_BYTES} bytes", where=str(path), remedy="name a YAML file")
        text = path.read_bytes()[: MAX_FILE_BYTES + 1].decode("utf-8")
    result = parse_yaml(text, str(path))
    if not isinstance(result, dict) or not all(isinstance(key, str) for key in result):
        raise InputError("is not a mapping of names to values", where=str(path))
    return result


def parse_yaml(text: str, where: str) -> object:
    """The value of one YAML document, None where there is none; refuses more than plain values, by line."""
    control = CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        raise InputError(f"has the control character {control[0]!r} in line {line}", where=where, remedy="remove it")
    try:
        return _Builder(where, yaml.parse(text, Loader=_Loader)).document()
    except (yaml.YAMLError, RecursionError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"is not YAML ({why})", where=where) from None


class _Dumper(yaml.SafeDumper):
    """Writes what `read_yaml` reads: a value that stands twice is written twice, without an anchor."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def yaml_text(content: Mapping[str, object], *, flow: bool | None = False) -> str:
    """YAML in the order given, without anchors; `flow=None` writes lists and mappings of plain values on one line."""
    options: dict[str, Any] = {"sort_keys": False, "width": 120, "allow_unicode": True, "default_flow_style": flow}
    return str(yaml.dump(dict(content), Dumper=_Dumper, **options))


class _Builder:
    """Builds plain values from parser events, and refuses at the first event that is more."""

    def __init__(self, where: str, events: Iterator[Any]) -> None:
        self.where, self.events, self.count = where, events, 0

    def document(self) -> object:
        result: object = None
        seen = False
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent) and seen:
                raise self._refused(event, "a second document")
            if isinstance(event, yaml.NodeEvent):
                result, seen = self._value(event, 1), True
        return result

    def _value(self, event: Any, depth: int) -> object:
        self.count += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise self._refused(event, "an anchor or alias")
        if self.count > MAX_VALUES:
            raise self._refused(event, f"more than {MAX_VALUES:,} values")
        if depth > MAX_DEPTH:
            raise self._refused(event, f"values nested deeper than {MAX_DEPTH}")
        if event.tag is not None:
            raise self._refused(event, f"the tag {event.tag[:80]!r}")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._value(each, depth + 1) for each in self._until(yaml.SequenceEndEvent)]
        return self._mapping(depth)

    def _mapping(self, depth: int) -> dict[object, object]:
        result: dict[object, object] = {}
        for event in self._until(yaml.MappingEndEvent):
            key = self._value(event, depth + 1)
            if isinstance(key, (dict, list)):
                raise self._refused(event, "a key that is a mapping or a list")
            if key in CODE_KEYS:
                raise self._refused(event, f"the key {key!r}, which configuration frameworks execute")
            if key in result:
                raise self._refused(event, f"the key {key!r} twice")
            result[key] = self._value(next(self.events), depth + 1)
        return result

    def _until(self, end: type[Any]) -> Iterator[Any]:
        for event in self.events:
            if isinstance(event, end):
                return
            yield event

    def _scalar(self, event: Any) -> object:
        if INTERPOLATION in event.value:
            raise self._refused(event, f"the interpolation {event.value[:80]!r}")
        tag = _RESOLVER.resolve(yaml.ScalarNode, event.value, event.implicit).removeprefix(PREFIX)
        if tag not in PLAIN_TAGS:
            raise self._refused(event, f"a value of type {tag}: {event.value[:80]!r}")
        if tag == "int" and len(event.value) > MAX_DIGITS:
            raise self._refused(event, f"a whole number of {len(event.value)} characters")
        construct = getattr(_RESOLVER, f"construct_yaml_{tag}")
        try:
            value: object = construct(yaml.ScalarNode(PREFIX + tag, event.value))
        except ValueError:
            raise self._refused(event, f"the number {event.value[:80]!r}") from None
        if isinstance(value, float) and not math.isfinite(value):
            raise self._refused(event, f"the number {event.value[:80]!r}")
        return value

    def _refused(self, event: Any, what: str) -> InputError:
        line = event.start_mark.line + 1
        return InputError(f"has {what} in line {line}", where=self.where, allowed=ALLOWED, remedy="write the value out")
