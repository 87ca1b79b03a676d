"""A user's accuracies: a CSV file with the columns pattern, sparsity and accuracy."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from gnnperf.analytic import BLOCK, UNSTRUCTURED, Blocks, Dense, Pattern, TwoFour
from gnnperf.core import InputError

COLUMNS = ("pattern", "sparsity", "accuracy")
PATTERNS = f"{UNSTRUCTURED}, {TwoFour().name}, {BLOCK}N (N the edge, e.g. {BLOCK}32)"
Requested = tuple[str, float]  # pattern, sparsity


def pattern_of(name: str, where: str) -> Pattern:
    """A pattern by name.

    Raises:
        InputError: there is no such pattern.
    """
    edge = name.removeprefix(BLOCK)
    if name == UNSTRUCTURED:
        return Blocks()
    if name == TwoFour().name:
        return TwoFour()
    if name.startswith(BLOCK) and edge.isascii() and edge.isdigit() and int(edge[:9]) >= 2:
        return Blocks(int(edge[:9]))
    raise InputError(f"no pattern {name!r}", where=where, allowed=PATTERNS)


def read_accuracies(path: Path) -> dict[Requested, float]:
    """(pattern, sparsity) -> accuracy; the dense network is "dense", 0.

    Raises:
        InputError: it cannot be read, lacks a column, or a row is none (names the line).
    """
    if not path.is_file():
        raise InputError("no such file", where=str(path), allowed=f"CSV with the columns {', '.join(COLUMNS)}")
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:  # pandas' errors are ValueErrors
        raise InputError(f"cannot be read ({str(error).splitlines()[0]})", where=str(path)) from None
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise InputError(f"column {missing[0]!r} is missing", where=str(path), allowed=", ".join(COLUMNS))
    result: dict[Requested, float] = {}
    for place, (name, sparsity, accuracy) in enumerate(table[list(COLUMNS)].itertuples(index=False, name=None)):
        where = f"{path}, line {place + 2}"
        requested = (name.strip(), _number(sparsity, f"{where}, sparsity"))
        check_sparsity(*requested, where)
        if requested in result:
            raise InputError(f"{name}, {sparsity} is there twice", where=where)
        result[requested] = _number(accuracy, f"{where}, accuracy")
    return result


def check_sparsity(name: str, sparsity: float, where: str) -> None:
    """Refuse a sparsity that a pattern does not have.

    Raises:
        InputError: out of range, or no such pattern.
    """
    only = Dense.only_sparsity if name == Dense.name else pattern_of(name, where).only_sparsity
    if only is not None and sparsity != only:
        raise InputError(f"sparsity {sparsity:g} of {name}", where=where, allowed=f"{only:g}")
    if only is None and not 0 < sparsity < 1:
        raise InputError(
            f"sparsity {sparsity:g}", where=where, allowed="above 0, below 1: the share that is not stored"
        )


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{text!r} is no number", where=where) from None
    if not math.isfinite(value):
        raise InputError(f"{text!r} is no number", where=where)
    return value
