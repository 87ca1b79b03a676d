"""A run's card as strangers write it -> what is kept of it: numbers, and the texts that the recorder writes.

A number is kept under any name, a text under the names below and in the form that belongs there. So hosts, commands,
paths and variables of other tools are left out. What the author of a run states of its program (`workload`,
`parameters`, `conditions`) is kept where it is plain words.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from gnnperf.core import InputError, untrusted
from gnnperf.trace.public_texts import device_name, without_private
from gnnperf.trace.table import CARD, EVENTS_FILE, IMPORTED
from gnnperf.trace.trace_sources import ARCHIVE_ENDINGS, is_regular

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
MAX_CARD_BYTES = 2**20


def public_card(card: Mapping[str, Any]) -> dict[str, object]:
    """The card without what its readers do not need and may not show."""
    kept = ((key, value) for key, value in card.items() if _KEY.fullmatch(key) and _is_retained(value, key))
    return {key: _retained(value, key, 0) for key, value in kept}


def _retained(value: Any, under: str, depth: int) -> Any:
    """A value under a name; where the name above states what its texts are, they are of that form."""
    if isinstance(value, Mapping):
        inner = {key: under if under in (*STATED, "versions") else key for key in value if _KEY.fullmatch(str(key))}
        return {key: _retained(value[key], name, depth + 1) for key, name in inner.items()
                if depth < MAX_DEPTH and _is_retained(value[key], name)}  # fmt: skip
    if isinstance(value, list):
        return [_retained(one, under, depth + 1) for one in value if depth < MAX_DEPTH and _is_retained(one, under)]
    return device_name(value) or None if under in NAMES and isinstance(value, str) else value


def _is_retained(value: Any, under: str) -> bool:
    if not isinstance(value, str) or under in NAMES:
        return True
    if under in FORM:
        return FORM[under].fullmatch(value) is not None
    plain = not value or (_WORDS.fullmatch(value) is not None and without_private(value) == value)
    return (under in WORDS or under in STATED) and plain


def read_card(directory: Path) -> dict[str, object] | None:
    """The recorder's `run.json` next to the traces, also of an imported run; None without one.

    Raises:
        InputError: it is no JSON object, or too large for a card.
    """
    path = next((path for path in (directory / CARD, directory / IMPORTED / CARD) if path.is_file()), None)
    if path is None:
        return None
    with untrusted.reading(path, "is not a JSON object"):
        if path.stat().st_size > MAX_CARD_BYTES:
            raise InputError("is larger than a run's card", where=str(path), allowed=f"{MAX_CARD_BYTES:,} bytes")
        return msgspec.json.decode(path.read_bytes(), type=dict[str, object])


def run_card(path: Path) -> dict[str, object] | None:
    """The recorder's card of the run of a trace file or folder, without what outputs may not show; None: no card."""
    return card_of((imported(path),))


def card_of(paths: Sequence[Path]) -> dict[str, object] | None:
    """The public card of the first of these files and folders that has one."""
    folders = [p if p.is_dir() else p.parent for p in paths if not p.name.lower().endswith(ARCHIVE_ENDINGS)]
    for folder in folders:
        if is_regular(folder / CARD, folder) and PurePosixPath(folder).name:
            card = read_card(folder)
            return None if card is None else public_card(card)
    return None


def imported(path: Path) -> Path:
    """The tables in what `gnnperf import --out` wrote; any other path as it is."""
    tables = path / IMPORTED
    return tables if tables.is_dir() and not tables.is_symlink() and is_saved(tables) else path


def is_saved(path: Path) -> bool:
    """Whether a path holds tables."""
    if path.is_dir():
        return (path / EVENTS_FILE).is_file()
    return path.suffix == ".parquet"
