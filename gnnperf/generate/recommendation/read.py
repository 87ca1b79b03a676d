"""A recommendation model from a mapping, as conf/plan/dlrm_*.yaml holds it: every key and value checked.

    name: small
    model: {tables: [...], bottom: [64, 32], top: [64, 1]}     see gnnperf.generate.recommendation.plan
    batch: 4096            samples of a step, over all ranks
    ranks: 8
    placement:             per table; left out: largest first, each to the emptiest rank
      users: row           row | column | replicated, over all ranks
      items: 3             the whole table on a rank
      shops: {split: column, ranks: [0, 1]}

`count: 12` in a table stands for twelve equal ones, NAME_0 to NAME_11.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from gnnperf.core import InputError
from gnnperf.generate.recommendation.plan import Interaction, Optimizer, RecommendationPlan, Recommender, check_sizes
from gnnperf.generate.tables import Placed, Placement, Split, Table
from gnnperf.hardware import closest

# A placement that is chosen by default: largest tables first, each to the rank that holds least.


def largest_first(tables: Sequence[Table], ranks: int) -> Placement:
    """Whole tables; equal ones in their order, the first of equally empty ranks."""
    held = [0.0] * ranks
    result: dict[int, Placed] = {}
    for index in sorted(range(len(tables)), key=lambda i: (-tables[i].rows * tables[i].dim, i)):
        rank = min(range(ranks), key=lambda r: (held[r], r))
        held[rank] += tables[index].rows * tables[index].dim
        result[index] = Placed(Split.TABLE, (rank,))
    return tuple(result[index] for index in range(len(tables)))


SECTIONS = ("name", "model", "batch", "ranks", "placement", "source")
MODEL_KEYS = tuple(field.name for field in dataclasses.fields(Recommender))
TABLE_KEYS = (*(field.name for field in dataclasses.fields(Table)), "count")
MOST_TABLES = 4096
PLACES = "a rank, row, column, replicated, or {split: ..., ranks: [...]}"


def is_recommendation(raw: Mapping[str, Any]) -> bool:
    """Whether a plan's mapping is of this family: its model has tables."""
    model = raw.get("model")
    return isinstance(model, Mapping) and "tables" in model


def recommendation_from(raw: Mapping[str, Any], where: str) -> RecommendationPlan:
    """The plan of a mapping; `source` says where its numbers come from and is not used.

    Raises:
        InputError: an unknown or missing key, a wrong type, a value that cannot be.
    """
    keys_in(raw, SECTIONS, where, needed=("model", "batch"))
    model, batch = _model(raw["model"], f"{where}.model"), whole(raw["batch"], f"{where}.batch")
    ranks = whole(raw.get("ranks", 1), f"{where}.ranks")
    check_sizes(batch, ranks)
    placement = placement_from(raw.get("placement"), model.tables, ranks, f"{where}.placement")
    return RecommendationPlan(str(raw.get("name", where)), model, batch, ranks, placement)


def _model(raw: object, where: str) -> Recommender:
    model = keys_in(raw, MODEL_KEYS, where, needed=("tables", "bottom", "top"))
    result: dict[str, Any] = {"tables": tuple(_tables(model["tables"], f"{where}.tables"))}
    result |= {key: _widths(model[key], f"{where}.{key}") for key in ("bottom", "top")}
    if "dense_features" in model:
        result["dense_features"] = whole(model["dense_features"], f"{where}.dense_features")
    if "dtype" in model:
        result["dtype"] = str(model["dtype"])
    choices: dict[str, type[StrEnum]] = {"interaction": Interaction, "optimizer": Optimizer}
    result |= {key: _choice(model[key], kind, f"{where}.{key}") for key, kind in choices.items() if key in model}
    return Recommender(**result)


def _widths(raw: object, where: str) -> tuple[int, ...]:
    return tuple(whole(width, where) for width in _list(raw, where))


def _tables(raw: object, where: str) -> Iterator[Table]:
    listed = _list(raw, where)
    for place, entry in enumerate(listed):
        here = f"{where}[{place}]"
        one = keys_in(entry, TABLE_KEYS, here, needed=("name", "rows", "dim"))
        rows, dim = (whole(one[key], f"{here}.{key}") for key in ("rows", "dim"))
        means = {key: _number(one[key], f"{here}.{key}") for key in ("pooling", "skew") if key in one}
        name, count = str(one["name"]), whole(one.get("count", 1), f"{here}.count")
        if count > MOST_TABLES:
            raise InputError(f"bad value {count}", where=f"{here}.count", allowed=f"at most {MOST_TABLES}")
        for number in range(count):
            yield Table(f"{name}_{number}" if "count" in one else name, rows, dim, **means)


def placement_from(raw: object, tables: Sequence[Table], ranks: int, where: str) -> Placement:
    """Of all tables; None: largest first."""
    if raw is None:
        return largest_first(tables, ranks)
    names = [table.name for table in tables]
    listed = keys_in(raw, names, where, needed=names)
    return tuple(_placed(listed[name], ranks, f"{where}.{name}") for name in names)


def _placed(raw: object, ranks: int, where: str) -> Placed:
    over_all = tuple(range(ranks))
    if isinstance(raw, int) and not isinstance(raw, bool):
        return Placed(Split.TABLE, (raw,))
    if isinstance(raw, Mapping):
        long = keys_in(raw, ("split", "ranks"), where, needed=("split", "ranks"))
        own = tuple(sorted(whole(r, f"{where}.ranks", least=0) for r in _list(long["ranks"], f"{where}.ranks")))
        return Placed(_choice(long["split"], Split, f"{where}.split"), own)
    if (raw == Split.TABLE and ranks > 1) or raw not in list(Split):
        raise InputError(f"bad value {raw!r}", where=where, allowed=PLACES)
    return Placed(Split(str(raw)), over_all)


def placement_as_written(tables: Sequence[Table], placement: Placement, ranks: int) -> dict[str, object]:
    """As `placement_from` reads it: by table, in the shortest form."""
    return {table.name: _as_written(placed, ranks) for table, placed in zip(tables, placement, strict=True)}


def _as_written(placed: Placed, ranks: int) -> object:
    if placed.split is Split.TABLE:
        return placed.ranks[0]
    if len(placed.ranks) == ranks:
        return str(placed.split)
    return {"split": str(placed.split), "ranks": list(placed.ranks)}


def keys_in(raw: object, allowed: Sequence[str], where: str, *, needed: Sequence[str]) -> Mapping[str, Any]:
    """A mapping with known keys, the needed ones among them."""
    if not isinstance(raw, Mapping):
        raise InputError(f"bad value {raw!r}"[:200], where=where, allowed=f"a mapping of {_some(allowed)}")
    for key in raw:
        if key not in allowed:
            near = closest(str(key), allowed)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            raise InputError(f"unknown key {key!r}{meant}", where=where, allowed=_some(allowed))
    missing = [key for key in needed if key not in raw]
    if missing:
        raise InputError(f"{_some(missing)} {'is' if len(missing) == 1 else 'are'} required", where=where)
    return raw


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def whole(raw: object, where: str, *, least: int = 1) -> int:
    """A whole number."""
    if isinstance(raw, bool) or not isinstance(raw, int) or raw < least:
        raise InputError(f"bad value {raw!r}", where=where, allowed=f"a whole number from {least} up")
    return raw


def _number(raw: object, where: str) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 < raw < float("inf"):
        raise InputError(f"bad value {raw!r}", where=where, allowed="a number above 0")
    return float(raw)


def _list(raw: object, where: str) -> Sequence[Any]:
    if isinstance(raw, str) or not isinstance(raw, Sequence):
        raise InputError(f"bad value {raw!r}"[:200], where=where, allowed="a list")
    return raw


def _choice(raw: object, kind: type[StrEnum], where: str) -> Any:
    if not isinstance(raw, str) or raw not in list(kind):
        raise InputError(f"bad value {raw!r}", where=where, allowed=", ".join(kind))
    return kind(raw)
