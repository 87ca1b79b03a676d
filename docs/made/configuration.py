"""Every key of train.py and predict.py, of edits and of hardware files, with type, default and meaning, as Markdown."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from docs.made.docstrings import field_docs, summary
from gnnperf.hardware import CLUSTER_GROUP, ClusterSpec, DeviceSpec, HostSpec, LinkSpec, conf_dir
from gnnperf.predict import EntryConfig, Request, composed
from gnnperf.predict.whatif import EDITS

REQUIRED = "required"
Row = tuple[str, str, str, str]
INTRODUCTION = """\
# Keys of configuration

Made from the dataclasses that hold the configuration (`EntryConfig`, `Request` and their parts); defaults are
those that the files of `conf/` give. `python train.py --cfg job` and `python predict.py --cfg job` print the same. An
unknown key, a wrong type or a bad value is one message and exit code 2.
"""
CLUSTER = "hgx8"  # a shipped file that says what its keys mean
SCRIPTS = (("train.py", "train", EntryConfig), ("predict.py", "predict", Request))
FILES = (
    ("Devices", "conf/hardware", DeviceSpec),
    ("Links", "conf/link", LinkSpec),
    ("Hosts", "conf/host", HostSpec),
)


@cache
def configuration_page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for script, name, node in SCRIPTS:
        parts += [f"## {script}\n", summary(node) + "\n", _table(key_rows(composed(name, node)))]
    parts += ["## Edits\n", "An entry of `whatif=[...]` names one edit and its settings: `{batch:{factor:2}}`.\n"]
    for name, kind in EDITS.items():
        parts += [f"### {name}\n", summary(kind) + "\n", _table(setting_rows(kind))]
    parts += ["## Files of hardware\n", "A file in one of these folders, or a file of your own by its path.\n"]
    for title, folder, kind in FILES:
        parts += [f"### {title}\n", f"{summary(kind)} Files of `{folder}`.\n", _table(setting_rows(kind))]
    shipped = (conf_dir(CLUSTER_GROUP) / f"{CLUSTER}.yaml").read_text()
    parts += ["### Clusters\n", f"{summary(ClusterSpec)} Files of `conf/cluster`, for example {CLUSTER}.yaml:\n",
              f"```yaml\n{shipped}```\n"]  # fmt: skip
    return "\n".join(parts)


def key_rows(config: Any, prefix: str = "") -> Iterator[Row]:
    """(key, type, default, meaning) of a composed configuration, a group's keys behind it."""
    hints, given = typing.get_type_hints(type(config)), field_docs(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from key_rows(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", words(hints[field.name]), _plain(value), given.get(field.name, "")


def setting_rows(kind: Any) -> Iterator[Row]:
    """(key, type, default, meaning) of a dataclass."""
    hints, given = typing.get_type_hints(kind), field_docs(kind)
    for field in dataclasses.fields(kind):
        yield field.name, words(hints[field.name]), _default(field), given.get(field.name, "")


def words(hint: Any) -> str:
    """A type as a user would say it."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(hint.__members__)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join(words(each) for each in typing.get_args(hint) if each is not Path)
    inner = [words(each) for each in typing.get_args(hint) if each is not Ellipsis]
    if typing.get_origin(hint) in (list, tuple):
        return f"list of {inner[0]}" if inner else "list"
    if typing.get_origin(hint) is dict:
        return "mapping"
    names = {
        int: "whole number",
        float: "number",
        bool: "true, false",
        str: "text",
        type(None): "null",
        Any: "anything",
    }
    return names.get(hint, hint.__name__)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return _plain(field.default)
    return REQUIRED if field.default_factory is dataclasses.MISSING else _plain(field.default_factory())


def _plain(value: Any) -> str:
    """As it is written on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_plain, value)) + "]"
    return str(value) if value != "" else '""'


def _table(rows: Iterable[Row]) -> str:
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, kind, default, meaning in rows:
        lines.append(
            f"| `{key}` | {kind} | {default if default == REQUIRED else f'`{default}`'} | {_record(meaning)} |"
        )
    return "\n".join(lines) + "\n"


def _record(text: str) -> str:
    """A meaning as a cell says it: in the words of the command line."""
    return re.sub(r"\bNone\b", "null", text).replace("|", "\\|").replace("<", "&lt;")
