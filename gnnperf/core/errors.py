"""What a user did wrong, stated in one message: what, where, what is allowed, what to do."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

REASON_CHARS = 500
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")


def printable(text: str) -> str:
    """The text without control, bidirectional and zero-width characters, and without commands to a terminal."""
    plain = text if text.isprintable() else _TERMINAL.sub("", text)
    return plain if plain.isprintable() else "".join(c for c in plain if c.isprintable())


class InputError(ValueError):
    """Input that cannot be used. Entry points print it as one message and exit with code 2.

    Args:
        what: what is wrong, with the offending value.
        where: file, key, column or event in question.
        allowed: what would have been accepted.
        remedy: what the user can do now.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", allowed: str = "", remedy: str = "") -> None:
        what, where, allowed, remedy = (
            "\n".join(map(printable, s.split("\n"))) for s in (what, where, allowed, remedy)
        )
        self.what, self.where, self.allowed, self.remedy = what, where, allowed, remedy
        sentences = [f"{where}: {what}" if where else what]
        if allowed:
            sentences.append(f"Allowed: {allowed}")
        if remedy:
            sentences.append(f"What to do: {remedy}")
        super().__init__(" ".join(s if s.endswith((".", "!", "?")) else f"{s}." for s in sentences))

    def __reduce__(self) -> tuple[object, ...]:
        """What pickle makes it of, where another process sends it."""
        return partial(type(self), self.what, where=self.where, allowed=self.allowed, remedy=self.remedy), ()


def require(ok: bool, key: str, result: object, allowed: str) -> None:
    """Refuse a setting unless `ok`; the message names the key, the value and what is allowed."""
    if not ok:
        raise InputError("no value is set" if result is None else f"bad value {result!r}", where=key, allowed=allowed)


def require_one(where: str, **settings: object) -> None:
    """Refuse settings of which not exactly one is given; None is not given."""
    given = [name for name, value in settings.items() if value is not None]
    if len(given) != 1:
        what = f"{' and '.join(given)} are both given" if given else "no value is set"
        raise InputError(what, where=where, allowed=f"one of {', '.join(settings)}")


def require_numbers(raw: object, where: str, least: float = 1e-9, most: float = 1e12) -> None:
    """Refuse a setting with a number beyond its range, at any depth of mappings and lists.

    Args:
        raw: of a user, plain values.
        where: the key it is behind.
        least: smallest magnitude of a number other than 0.
        most: largest magnitude. The defaults hold for factors, counts, microseconds and bytes.
    """
    if isinstance(raw, Mapping):
        for key, value in raw.items():
            require_numbers(value, f"{where}.{key}", least, most)
    elif isinstance(raw, (list, tuple)):
        for index, value in enumerate(raw):
            require_numbers(value, f"{where}[{index}]", least, most)
    elif isinstance(raw, (int, float)) and not isinstance(raw, bool) and raw != 0 and not least <= abs(raw) <= most:
        shown = f"{raw!r:.40}" if isinstance(raw, float) else f"a whole number of {len(str(abs(raw)))} digits"
        raise InputError(f"bad value {shown}", where=where, allowed=f"0, or {least:g} to {most:g}")


def require_writable(out: Path, suffixes: Collection[str]) -> None:
    """Refuse a file of `--out` that could not be written later: another suffix, or no such folder."""
    if out.suffix not in suffixes:
        raise InputError(f"suffix {out.suffix!r}", where=f"--out {out}", allowed=", ".join(suffixes))
    if not out.parent.is_dir():
        raise InputError("no such folder", where=f"--out {out.parent}", remedy="create it first")


@dataclass(frozen=True)
class Failed:
    """Why there is no result."""

    reason: str
    is_input: bool = False  # the input cannot be used; otherwise another try may succeed


def attempted(item: Any, function: Callable[[Any], Any]) -> Any:
    """The result, or Failed: one bad input must not end work on thousands."""
    try:
        return function(item)
    except Exception as error:
        text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        return Failed(text[:REASON_CHARS], isinstance(error, InputError) and not isinstance(error, OSError))
