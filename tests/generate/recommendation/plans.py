"""Small recommendation models that the tests share."""

from typing import Any

from gnnperf.generate.recommendation.plan import Placed, Placement, RecommendationPlan, Recommender, Split, Table

DIM = 16
TABLES = (
    Table("users", 1_000_000, DIM, pooling=2.0),
    Table("items", 50_000, DIM, pooling=10.0, skew=4.0),
    Table("shops", 500, DIM),
    Table("days", 7, DIM),
)


def model(tables: tuple[Table, ...] = TABLES, **settings: Any) -> Recommender:
    return Recommender(tables, bottom=(32, tables[0].dim), top=(24, 1), dense_features=13, **settings)


def on(rank: int) -> Placed:
    return Placed(Split.TABLE, (rank,))


def over(split: Split, ranks: int) -> Placed:
    return Placed(split, tuple(range(ranks)))


def plan(ranks: int, *placed: Placed, batch: int = 1024, **settings: Any) -> RecommendationPlan:
    placement: Placement = placed or tuple(on(i % ranks) for i in range(len(TABLES)))
    return RecommendationPlan("small", model(**settings), batch, ranks, placement)


def mixed(ranks: int, **settings: Any) -> RecommendationPlan:
    """Every way to hold a table: rows over all, columns over two, rows over two, replicated."""
    return plan(ranks, over(Split.ROW, ranks), over(Split.COLUMN, 2), over(Split.ROW, 2), over(Split.REPLICATED, ranks),
                **settings)  # fmt: skip
