"""Equal data have an equal hash, whatever holds them; a changed bit has another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch

from gnnperf.gnn.data.content import content_digest


@dataclass(frozen=True)
class Held:
    values: np.ndarray
    name: str = "a"


def table(ops: list[str], categories: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"op": pd.Categorical(ops, categories), "us": [1.0, np.nan]})


def test_copies_are_equal() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert content_digest(Held(x), torch.from_numpy(x)) == content_digest(Held(x.copy()), torch.from_numpy(x).clone())
    assert content_digest(x[:, ::2]) == content_digest(x[:, ::2].copy())


def test_the_order_of_categories_does_not_count_that_of_rows_does() -> None:
    one = content_digest(table(["mm", "add"], ["add", "mm"]))
    assert content_digest(table(["mm", "add"], ["mm", "unused", "add"])) == one
    assert content_digest(table(["add", "mm"], ["add", "mm"])) != one


@pytest.mark.parametrize(("one", "other"), [
    (np.zeros(2), np.zeros(2, np.int64)),
    (np.zeros((2, 3)), np.zeros((3, 2))),
    (np.array([0.0]), np.array([-0.0])),
    (np.zeros(2), torch.zeros(2, dtype=torch.float64)),
    (Held(np.zeros(2)), Held(np.array([0.0, 1e-300]))),
    (Held(np.zeros(2)), Held(np.zeros(2), "b")),
    ([1, [2]], [[1], 2]),
    ((1, None), (1,)),
    ({"a": 1}, {"a": 2}),
    (np.array(["gnn", None], dtype=object), np.array(["gnn", "None"], dtype=object)),
    (pd.DataFrame({"n": [1, 2]}), pd.DataFrame({"n": [1, 2]}, dtype="int32")),
    (table(["mm", "add"], ["add", "mm"]), table(["mm", "add"], ["add", "mm"]).rename(columns={"us": "ms"})),
])  # fmt: skip
def test_what_differs_has_another_hash(one: object, other: object) -> None:
    assert content_digest(one) != content_digest(other)


def test_a_set_is_refused() -> None:
    with pytest.raises(TypeError, match="sort it"):
        content_digest({"a": {1, 2}})
