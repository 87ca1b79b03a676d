"""hardware=PATH.yaml, cluster=PATH.yaml and plan=PATH.yaml: files of users, which Hydra never sees.

    hardware=mine.yaml hardware.clock_hz=1e9  ->  hardware=own_file_0 ++hardware.clock_hz=1e9   Hydra composes this
    {own_file: 0, clock_hz: 1e9}              ->  {name: mine, ..., clock_hz: 1e9}              the task gets this

Hydra composes a choice that holds a number only. The file's mapping, read by `read_yaml`, takes the choice's part after
composition, as plain values: nothing in it is interpolated, instantiated or read as a list of defaults.

Text on the command line is the user's own, but a path in it is data: `literal` quotes what Hydra's grammar or
OmegaConf's interpolation would read in it.
"""

import argparse
import re
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnperf.core import InputError
from gnnperf.hardware import CLUSTER_GROUP, DEVICE_GROUP, INTERPOLATION, PLAN_GROUP, conf_dir, is_path, read_yaml

OWN = "own_file"
GROUPS = (DEVICE_GROUP, CLUSTER_GROUP, PLAN_GROUP)
CONF_DIR = conf_dir(DEVICE_GROUP).parent
PLAIN = re.compile(r"[\w./@%+:-]+", re.ASCII)  # what Hydra reads as text, or as a number, without quotes
SWEEP = re.compile(r"(choice|range|interval|glob|shuffle|sort|tag|extend_list)\(")


class OwnFiles:
    """The user's files that a command line names."""

    def __init__(self) -> None:
        self.contents: list[dict[str, object]] = []  # mapping of each file, in order

    def overrides(self, words: Sequence[str]) -> list[str]:
        """The words with a choice of Hydra's in place of each path, and settings of such groups and plans as additions.

        A plan's file need not state every setting, so that Hydra knows none but those of the file.
        """
        words = [one for word in words for one in several_devices(word)]
        replaced = [self._choice(word) for word in words]
        own = {old.partition("=")[0] for old, new in zip(words, replaced, strict=True) if old != new} | {PLAN_GROUP}
        return [f"++{word}" if word.partition(".")[0] in own and "=" in word else word for word in replaced]

    def _choice(self, word: str) -> str:
        group, separator, value = word.partition("=")
        if (
            separator
            and "/" in value
            and (conf_dir(DEVICE_GROUP).parent / group.lstrip("+")).is_dir()
            and not is_path(_unquoted(value))
        ):
            raise InputError(f"bad value {value!r}", where=group, allowed="names of conf, or paths of .yaml files")
        if group not in GROUPS or not separator:
            return word
        value = _unquoted(value)
        whole = is_path(value) and Path(value).is_file()  # else a sweep lists several
        choices = [value] if whole else value.split(",")
        if not any(is_path(choice) for choice in choices):
            return word
        return f"{group}={','.join(self._named(choice) if is_path(choice) else choice for choice in choices)}"

    def _named(self, path: str) -> str:
        self.contents.append(read_yaml(Path(path)))
        return f"{OWN}_{len(self.contents) - 1}"

    def inserted(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """A composed group with its file's content; settings of the command line go over it."""
        if OWN not in group:
            return dict(group)
        number = group[OWN]
        if not isinstance(number, int) or not 0 <= number < len(self.contents):
            raise InputError(f"bad value {number!r}", where=OWN, remedy="give the path of a .yaml file")
        return _merged(self.contents[number], {key: value for key, value in group.items() if key != OWN})


def several_devices(word: str) -> list[str]:
    """hardware=[a,b,c]  ->  hardware=a other_hardware=[b,c]: a group has one choice; any other word stays."""
    group, _, value = word.partition("=")
    if group != DEVICE_GROUP or not (value.startswith("[") and value.endswith("]")):
        return [word]
    first, *others = (_unquoted(name.strip()) for name in value[1:-1].split(","))
    if not first:
        raise InputError(f"bad value {value!r}", where=group, allowed="names of conf, or paths of .yaml files")
    return [f"{group}={first}", f"other_hardware=[{','.join(map(quoted, others))}]"]


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        result[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def literal(value: str) -> str:
    """Text of a command line as Hydra reads it back, whatever is in it; quoted text, lists and sweeps stay."""
    if PLAIN.fullmatch(value) or not value or value[0] in "'\"[{" or SWEEP.match(value):
        return value
    return value if "," in value and not Path(value).exists() and INTERPOLATION not in value else quoted(value)


def escaped(value: Any) -> Any:
    """A value as OmegaConf reads it back: text in it is not interpolated."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    if isinstance(value, Mapping):
        return {key: escaped(each) for key, each in value.items()}
    return [escaped(each) for each in value] if isinstance(value, (list, tuple)) else value


def quoted(value: str) -> str:
    """Text in quotes, as Hydra and OmegaConf read it back."""
    if PLAIN.fullmatch(value):
        return value
    inner = re.sub(r"(\\*)'", r"\1\1\\'", escaped(value))  # backslashes count where a quote follows
    return "'" + re.sub(r"(\\+)$", r"\1\1", inner) + "'"


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


# Flags as other command lines have them, for keys that a script reads: `--json`, `--max-step-ms 12`.
#
#     predict.py trace=PATH --json --max-step-ms 12    ->    predict.py trace=PATH json=true max_step_ms=12
#
# Hydra reads `key=value` and has flags of its own (`--help`, `--cfg`, `--multirun`, ...), which stay as they are.


def with_keys(words: Sequence[str], flags: Sequence[str], node: type) -> list[str]:
    """The words with an override for each flag, all overrides in a row: Hydra's parser wants them so."""
    hints = typing.get_type_hints(node)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for key in flags:
        action = "store_true" if hints[key] is bool else "store"
        parser.add_argument(f"--{key.replace('_', '-')}", dest=key, action=action)
    try:
        given, others = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        raise InputError(error.message, where=str(error.argument_name)) from None
    keys = [f"{key}={'true' if value is True else quoted(value)}" for key, value in vars(given).items()
            if value not in (None, False)]  # fmt: skip
    overrides = [word for word in others if "=" in word and not word.startswith("-")]
    return [*overrides, *keys, *(word for word in others if word not in overrides)]
