"""Tables and placements that cannot be are refused."""

import pytest

from gnnperf.core.errors import InputError
from gnnperf.generate.tables import Placed, Split, Table


@pytest.mark.parametrize("sizes", [{"rows": 0}, {"dim": -1}, {"pooling": 0.0}, {"skew": 0.0}])
def test_a_table_has_rows_and_columns(sizes: dict[str, float]) -> None:
    with pytest.raises(InputError, match="bad value"):
        Table("t", **{"rows": 10, "dim": 4, **sizes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("split", "ranks"), [(Split.TABLE, (0, 1)), (Split.ROW, ()), (Split.ROW, (1, 0)), (Split.COLUMN, (0, 0))]
)
def test_a_table_is_on_ranks_that_differ(split: Split, ranks: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="ranks of a table"):
        Placed(split, ranks)
