"""A run's card as strangers write it -> what is kept of it: numbers, and the texts that the recorder writes.

A number is kept under any name, a text under the names below and in the form that belongs there. So hosts, commands,
paths and variables of other tools are left out. What the author of a run states of its program (`workload`,
`parameters`, `conditions`) is kept where it is plain words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gnnperf.trace.device_names import device_name
from gnnperf.trace.public_text import without_private

_KEY = re.compile("[A-Za-z][A-Za-z0-9_]{0,39}")
_DIGEST = re.compile("[0-9a-f]{8,64}")
_VERSION = re.compile(r"[0-9]\w{0,15}(?:[.+]\w{1,15}){0,4}", re.ASCII)
_TIME = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_WORDS = re.compile(r"\w[\w ,.+-]{0,63}", re.ASCII)
FORM = {"recorded_at": _TIME, "machine": _DIGEST, "fingerprint": _DIGEST, "versions": _VERSION, "kernel": _VERSION}
NAMES = ("name", "cpu")  # of devices
WORDS = ("status", "workload", "precision", "backend", "medium", "operation", "garbage_collector", "governor",
         "scheduling", "kind", "capability", "method")  # fmt: skip
STATED = ("parameters", "conditions")
MAX_DEPTH = 12


def public_card(card: Mapping[str, Any]) -> dict[str, object]:
    """The card without what its readers do not need and may not show."""
    return {key: _kept(value, key, 0) for key, value in card.items() if _KEY.fullmatch(key) and _is_kept(value, key)}


def _kept(value: Any, under: str, depth: int) -> Any:
    """A value under a name; where the name above says what its texts are, they are of that form."""
    if isinstance(value, Mapping):
        inner = {key: under if under in (*STATED, "versions") else key for key in value if _KEY.fullmatch(str(key))}
        return {key: _kept(value[key], name, depth + 1) for key, name in inner.items()
                if depth < MAX_DEPTH and _is_kept(value[key], name)}  # fmt: skip
    if isinstance(value, list):
        return [_kept(one, under, depth + 1) for one in value if depth < MAX_DEPTH and _is_kept(one, under)]
    return device_name(value) or None if under in NAMES and isinstance(value, str) else value


def _is_kept(value: Any, under: str) -> bool:
    if not isinstance(value, str) or under in NAMES:
        return True
    if under in FORM:
        return FORM[under].fullmatch(value) is not None
    return (under in WORDS or under in STATED) and _is_plain(value)


def _is_plain(text: str) -> bool:
    return not text or (_WORDS.fullmatch(text) is not None and without_private(text) == text)
