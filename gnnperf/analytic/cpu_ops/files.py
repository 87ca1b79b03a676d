"""OpPrices as plain mappings: in YAML, and in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields

from gnnperf.analytic.cpu_ops.counts import COUNTS
from gnnperf.analytic.cpu_ops.prices import BACK_OFF, CoreNumbers, FamilyPrices, OpPrices
from gnnperf.core.errors import InputError

DIGITS = 4  # significant
LARGEST = 1e18  # of any number: FLOP/s
KEYS = ("core", "families")
FAMILY_KEYS = ("price_us", "op_factor", "dtype_factor")
Plain = dict[str, object]


def prices_to_plain(prices: OpPrices) -> Plain:
    """Names and numbers only."""
    families = {
        name: {
            "price_us": _rounded(family.price_us),
            "op_factor": {op: _rounded(factors) for op, factors in family.op_factor.items()},
            "dtype_factor": _rounded(family.dtype_factor),
        }
        for name, family in prices.families.items()
    }
    return {"core": asdict(prices.core), "families": families}


def prices_from_plain(raw: object, where: str) -> OpPrices:
    """The prices again.

    Raises:
        InputError: a key is missing or unknown, or a value is no number from 0 up.
    """
    found = _exactly(raw, KEYS, where)
    core = _numbers(found["core"], f"{where}.core", tuple(f.name for f in fields(CoreNumbers)))
    families = {name: _family(family, f"{where}.families.{name}") for name, family in _items(found["families"], where)}
    if BACK_OFF not in families:
        raise InputError(f"has no prices of the family {BACK_OFF!r}", where=f"{where}.families")
    return OpPrices(families, CoreNumbers(**core))


def _family(raw: object, where: str) -> FamilyPrices:
    found = _exactly(raw, FAMILY_KEYS, where)
    factors = {op: _numbers(each, f"{where}.op_factor.{op}", COUNTS, whole=False)
               for op, each in _items(found["op_factor"], f"{where}.op_factor")}  # fmt: skip
    dtypes = {name: _number(value, f"{where}.dtype_factor.{name}")
              for name, value in _items(found["dtype_factor"], f"{where}.dtype_factor")}  # fmt: skip
    return FamilyPrices(_numbers(found["price_us"], f"{where}.price_us", COUNTS, whole=False), factors, dtypes)


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.{DIGITS}g}") for name, value in values.items()}


def _numbers(raw: object, where: str, names: tuple[str, ...], whole: bool = True) -> dict[str, float]:
    found = dict(_items(raw, where))
    odd = sorted(set(found) ^ set(names)) if whole else sorted(set(found) - set(names))
    if odd:
        raise InputError(f"missing or unknown: {', '.join(odd)}", where=where, allowed=", ".join(names))
    return {name: _number(value, f"{where}.{name}") for name, value in found.items()}


def _exactly(raw: object, names: tuple[str, ...], where: str) -> dict[str, object]:
    found = dict(_items(raw, where))
    odd = sorted(set(found) ^ set(names))
    if odd:
        raise InputError(f"missing or unknown: {', '.join(odd)}", where=where, allowed=", ".join(names))
    return found


def _items(raw: object, where: str) -> list[tuple[str, object]]:
    if not isinstance(raw, dict) or not all(isinstance(name, str) for name in raw):
        raise InputError("is not a mapping of names to values", where=where)
    return list(raw.items())


def _number(raw: object, where: str) -> float:
    good = isinstance(raw, (int, float)) and not isinstance(raw, bool) and 0 <= raw <= LARGEST
    if not good:
        raise InputError(f"value {raw!r}", where=where, allowed="a number from 0 up")
    return float(raw)  # type: ignore[arg-type]
