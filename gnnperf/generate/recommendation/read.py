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

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gnnperf.core import InputError, require
from gnnperf.generate.recommendation import plan
from gnnperf.generate.recommendation.plan import Placed, Placement, RecommendationPlan, Recommender, Split, Table
from gnnperf.hardware import keys_in, list_of, section, value_as

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
    """The plan of a mapping; `source` states where its numbers come from and is not used. Errors: see read_plan."""
    keys_in(raw, SECTIONS, where, needed=("model", "batch"))
    own = keys_in(raw["model"], MODEL_KEYS, f"{where}.model", needed=("tables",))
    tables = [table for place, entry in enumerate(list_of(own["tables"], f"{where}.model.tables"))
              for table in _equal_tables(entry, f"{where}.model.tables[{place}]")]  # fmt: skip
    model = section(Recommender, {**own, "tables": tables}, f"{where}.model")
    batch = value_as(raw["batch"], int, f"{where}.batch")
    ranks = value_as(raw.get("ranks", 1), int, f"{where}.ranks")
    plan.check_sizes(batch, ranks)
    placement = placement_from(raw.get("placement"), model.tables, ranks, f"{where}.placement")
    return RecommendationPlan(str(raw.get("name", where)), model, batch, ranks, placement)


def _equal_tables(raw: object, where: str) -> Iterator[Table]:
    """As many as `count`."""
    one = keys_in(raw, TABLE_KEYS, where)
    table = section(Table, {key: value for key, value in one.items() if key != "count"}, where)
    count = value_as(one.get("count", 1), int, f"{where}.count")
    require(1 <= count <= MOST_TABLES, f"{where}.count", count, f"a whole number from 1 to {MOST_TABLES}")
    for number in range(count):
        yield replace(table, name=f"{table.name}_{number}") if "count" in one else table


def placement_from(raw: object, tables: Sequence[Table], ranks: int, where: str) -> Placement:
    """Of all tables; None: largest first."""
    if raw is None:
        return largest_first(tables, ranks)
    names = [table.name for table in tables]
    listed = keys_in(raw, names, where, needed=names)
    return tuple(_placed(listed[name], ranks, f"{where}.{name}") for name in names)


def _placed(raw: object, ranks: int, where: str) -> Placed:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return Placed(Split.TABLE, (raw,))
    if isinstance(raw, Mapping):
        long = keys_in(raw, ("split", "ranks"), where, needed=("split", "ranks"))
        own = sorted(value_as(long["ranks"], tuple[int, ...], f"{where}.ranks"))
        return Placed(value_as(long["split"], Split, f"{where}.split"), tuple(own))
    if (raw == Split.TABLE and ranks > 1) or raw not in list(Split):
        raise InputError(f"bad value {raw!r}", where=where, allowed=PLACES)
    return Placed(Split(str(raw)), tuple(range(ranks)))


def placement_as_written(tables: Sequence[Table], placement: Placement, ranks: int) -> dict[str, object]:
    """As `placement_from` reads it: by table, in the shortest form."""
    return {table.name: _as_written(placed, ranks) for table, placed in zip(tables, placement, strict=True)}


def _as_written(placed: Placed, ranks: int) -> object:
    if placed.split is Split.TABLE:
        return placed.ranks[0]
    if len(placed.ranks) == ranks:
        return str(placed.split)
    return {"split": str(placed.split), "ranks": list(placed.ranks)}
