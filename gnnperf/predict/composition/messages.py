"""What hydra and omegaconf complain about, in one sentence: the key, the value, what is allowed."""

import dataclasses
import difflib
import re
import typing
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from gnnperf.core import InputError
from gnnperf.hardware import GROUPS as CATALOG_GROUPS
from gnnperf.hardware import unknown_name

OPTUNA = "hydra/sweeper/optuna"
REMEDY = "see conf/ for every key and its default, or run with --cfg job"


def explain(error: Exception, node: type) -> InputError:
    """One InputError for anything raised while a config was composed for schema `node`."""
    inner = next((e for e in _chain(error) if isinstance(e, OmegaConfBaseException)), None)
    if isinstance(inner, ConfigKeyError | ConfigAttributeError):
        requested = re.search(r"use \+(.*)", str(error))  # hydra quotes the override: key=value
        return unknown_key(_full_key(inner, error), node, requested[1] if requested else "")
    if isinstance(inner, ValidationError):
        return _bad_value(inner, _full_key(inner, error), node)
    if isinstance(inner, MissingMandatoryValue):
        return InputError("a value is required", where=str(inner.full_key), remedy=f"pass {inner.full_key}=VALUE")
    return InputError(_first_line(str(error)), remedy=REMEDY)


def missing_choice(requested: str | None, options: Sequence[str] | None, message: str) -> InputError:
    """The message for a config file that is not there: `requested` is group/choice, `options` what the group holds."""
    if requested and requested.startswith(OPTUNA):
        return InputError("the Optuna sweeper is not installed", where=OPTUNA, remedy="pip install 'gnnperf[sweep]'")
    group, _, choice = (requested or "").rpartition("/")
    if options and group in CATALOG_GROUPS:
        return unknown_name(choice, group, options)
    if options and group:
        return InputError(f"no choice {choice!r}", where=group, allowed=", ".join(options))
    return InputError(_first_line(message), remedy=REMEDY)


def unreadable(override: str, message: str) -> InputError:
    """The message for an override that does not parse."""
    return InputError(f"cannot read the override {override!r}: {_first_line(message)}", allowed="key=value")


def refuse_settings_of_list(node: type, key: str, value: str) -> None:
    """Refuse `whatif.batch=2`, with the right form: lists have no settings by name."""
    first, _, rest = key.partition(".")
    if not rest or typing.get_origin(_hint(node, first)) is not list:
        return
    from gnnperf.predict.whatif import EXAMPLE, KEY, parse_edit  # loads all edits

    example = f"{first}=[{value}]"
    if first == KEY:
        try:
            ((name, settings),) = parse_edit(f"{rest.replace('.', '=', 1)}{':' if '.' in rest else '='}{value}").items()
            example = f"{KEY}=[{{{name}:{{{','.join(f'{k}:{v}' for k, v in settings.items())}}}}}]"
        except InputError:
            example = EXAMPLE
    raise InputError(
        "a list, which has no settings by name", where=key, allowed=f"{first}=[...]", remedy=f"give '{example}'"
    )


def check_keys(raw: DictConfig, node: type) -> None:
    """Refuse keys that were forced in (with +key=value) and mandatory values that no one gave."""
    allowed = set(schema_keys(node))
    for key in _config_keys(raw):
        if key not in allowed and not any(
            key.startswith(f"{a}.")
            for a in allowed
            if _hint(node, a) is Any or typing.get_origin(_hint(node, a)) is dict
        ):
            raise unknown_key(key, node)
    for key in sorted(OmegaConf.missing_keys(raw)):
        raise InputError("a value is required", where=key, remedy=f"pass {key}=VALUE")


def unknown_key(key: str, node: type, override: str = "") -> InputError:
    """The message for a key that schema `node` does not have, with its neighbors and the closest one."""
    keys = list(schema_keys(node))
    parent, _, tail = key.rpartition(".")
    siblings = [k for k in keys if k.rpartition(".")[0] == parent] or [k for k in keys if "." not in k]
    near = [k for k in keys if tail in (_tail(k), "".join(word[0] for word in _tail(k).split("_")))]
    near += [k for k in siblings if difflib.get_close_matches(tail, [_tail(k)], cutoff=0.5)]
    near += difflib.get_close_matches(key, keys, cutoff=0.6)
    remedy = f"did you mean {near[0]!r}? Else {REMEDY}" if near else REMEDY
    what = f"unknown key {key!r}" + (f" in {override!r}" if override else "")
    return InputError(what, allowed=", ".join(siblings), remedy=remedy)


def schema_keys(node: type, prefix: str = "") -> Iterator[str]:
    """Every dotted key of a config dataclass, groups before their members."""
    hints = typing.get_type_hints(node)
    for field in dataclasses.fields(node):
        yield prefix + field.name
        if dataclasses.is_dataclass(hints[field.name]):
            yield from schema_keys(hints[field.name], f"{prefix}{field.name}.")


def _tail(key: str) -> str:
    return key.rpartition(".")[2]


def _config_keys(raw: DictConfig, prefix: str = "") -> Iterator[str]:
    for name in raw:
        key = str(name)
        yield f"{prefix}{key}"
        child = raw._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none() and not child._is_missing():
            yield from _config_keys(child, f"{prefix}{key}.")


@cache
def _hints(node: type) -> dict[str, Any]:
    return typing.get_type_hints(node)


def _hint(node: type, key: str) -> Any:
    """The type of the field at a dotted key; None if there is none."""
    hint: Any = node
    for part in key.split("."):
        hint = _hints(hint).get(part) if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None
    return hint


def is_text(node: type, key: str) -> bool:
    """Whether the field at a dotted key takes text."""
    hint = _hint(node, key)
    return str in (typing.get_args(hint) or (hint,))


def _words(hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(hint.__members__)
    if typing.get_origin(hint) in (UnionType, typing.Union):
        return " or ".join(_words(h) for h in typing.get_args(hint) if h is not Path)  # a path is text
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    return names.get(hint, str(getattr(hint, "__name__", hint)))


def _bad_value(inner: OmegaConfBaseException, key: str, node: type) -> InputError:
    hint = _hint(node, key)
    value = inner.value
    if value is None:
        result = re.search(r"[Vv]alue '([^']*)'", str(inner))
        value = result[1] if result else None
    if isinstance(value, DictConfig) or (hint is None):
        return InputError(_first_line(str(inner)), where=key, remedy=REMEDY)
    return InputError(f"bad value {value!r}", where=key, allowed=_words(hint))


def _full_key(inner: OmegaConfBaseException, outer: BaseException) -> str:
    """The dotted key; inside a merged YAML group omegaconf knows only its tail, hydra's message the file."""
    key = str(inner.full_key or inner.key)
    result = re.search(r"In '([^']+)'", str(outer))
    group = result[1].rpartition("/")[0].replace("/", ".") if result else ""
    return key if not group or key.startswith(f"{group}.") else f"{group}.{key}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")
