"""Flags as other command lines have them, for keys that a script reads: `--json`, `--max-step-ms 12`.

    predict.py trace=PATH --json --max-step-ms 12    ->    predict.py trace=PATH json=true max_step_ms=12

Hydra reads `key=value` and has flags of its own (`--help`, `--cfg`, `--multirun`, ...), which stay as they are.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence

from gnnperf.core import InputError
from gnnperf.predict.composition.own_files import quoted


def with_keys(words: Sequence[str], flags: Sequence[str], node: type) -> list[str]:
    """The words with an override for each flag, behind the other overrides: Hydra's parser wants them all in a row.

    Args:
        words: of a command line.
        flags: keys of `node` that may be given as flags.
        node: the configuration's dataclass; a key that is true or false takes no value.

    Raises:
        InputError: a flag without the value that it takes, or with one that it does not take.
    """
    key_of, hints = {f"--{key.replace('_', '-')}": key for key in flags}, typing.get_type_hints(node)
    others, keys = list[str](), list[str]()
    following = iter(words)
    for word in following:
        flag, separator, value = word.partition("=")
        if flag in key_of:
            given = value if separator else None
            keys.append(_override(flag, key_of[flag], given, following, hints[key_of[flag]] is bool))
        else:
            others.append(word)
    at = _behind_overrides(others)
    return [*others[:at], *keys, *others[at:]]


def _override(flag: str, key: str, given: str | None, following: Iterator[str], is_switch: bool) -> str:
    """Of one flag; `given` is what stands behind its "=", None: nothing."""
    if is_switch:
        if given is not None:
            raise InputError(f"takes no value, here {given!r}", where=flag, allowed=f"{flag}, or {key}={given}")
        return f"{key}=true"
    value = next(following, "") if given is None else given
    if not value or (given is None and value.startswith("--")):
        raise InputError("needs a value", where=flag, allowed=f"{flag} VALUE, or {key}=VALUE")
    return f"{key}={quoted(value)}"


def _behind_overrides(words: Sequence[str]) -> int:
    """The place behind the first row of overrides; the end where there is none."""
    first = next((at for at, word in enumerate(words) if "=" in word and not word.startswith("-")), len(words))
    return next((at for at in range(first, len(words)) if words[at].startswith("-")), len(words))
