"""Command lines of names and paths: their configuration without Hydra, which takes 0.4 s to load and compose."""

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import yaml

from gnnperf.hardware import conf_dir, is_path, read_yaml
from gnnperf.predict.composition.command_line import CONF_DIR, GROUPS

ConfigT = TypeVar("ConfigT")
TEXT = re.compile(r"(?:\.{0,2}/)?[A-Za-z_][\w./-]*", re.ASCII)  # what Hydra reads as the text that it is
WORDS = {"null", "true", "false", "nan", "inf"}  # and these as other values
OWN_FOLDER = "output_subdir: null"  # of an entry point for which Hydra makes no folder


def plain_config(name: str, node: type[ConfigT], words: Sequence[str], **values: Any) -> ConfigT | None:
    """What Hydra composes of conf/<name>.yaml and these words and values.

    None: a word is no choice of a group and sets no field of text at the top, or a value is neither text nor a switch.
    """
    content = (CONF_DIR / f"{name}.yaml").read_text(encoding="utf-8")
    given = dict(word.split("=", 1) for word in words if "=" in word)
    if OWN_FOLDER not in content or len(given) < len(words) or given.keys() & values.keys():
        return None
    hints = typing.get_type_hints(node)
    groups = {key: value for key, value in given.items() if key in GROUPS}
    files = {key: conf_dir(key) / f"{value}.yaml" for key, value in groups.items()}
    for key, value in given.items():
        known = not is_path(value) and files[key].is_file() if key in groups else _takes_text(hints.get(key))
        if not known or not TEXT.fullmatch(value) or value.lower() in WORDS:
            return None
    for key, value in values.items():
        if not ((isinstance(value, str) and _takes_text(hints.get(key))) or (value is True and hints.get(key) is bool)):
            return None
    stated = yaml.safe_load(content)
    own = {key: stated[key] for key in stated.keys() - {"defaults", "hydra"}}
    return _typed(node, {**own, **given, **values, **{key: read_yaml(file) for key, file in files.items()}})


def _takes_text(hint: Any) -> bool:
    return str in (typing.get_args(hint) or (hint,))


def _typed(node: type[Any], values: Mapping[str, Any]) -> Any:
    """The dataclass of plain values; sections and enumerations by the types of its fields."""
    hints, typed = typing.get_type_hints(node), {}
    for key, value in values.items():
        hint = hints[key]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            typed[key] = _typed(hint, value)
        else:
            typed[key] = hint(value) if isinstance(hint, type) and issubclass(hint, Enum) else value
    return node(**typed)
