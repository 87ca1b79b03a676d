"""Calls that put all tables' data one after another: they are as long as the lists they take.

forward    cat of indices per rank and table, cat of own vectors
backward   cat of the gradients that go to each rank (the last rank first), cat of all of them
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from gnnperf.core import Phase
from gnnperf.generate import Placement, Shape, text
from gnnperf.whatif.reshard.parts import Model

CAT = "aten::cat"
Listed = tuple[Phase, tuple[Shape, ...]]


def resized_lists(
    nodes: pd.DataFrame, model: Model, before: Placement, after: Placement
) -> tuple[pd.DataFrame, np.ndarray]:
    """The nodes with the lists of another placement; [num_nodes] bool: whose changed."""
    dims, moved = nodes["input_dims"].astype(object).to_numpy(copy=True), nodes["bytes"].to_numpy(copy=True)
    changed = np.zeros(len(nodes), dtype=bool)
    calls = nodes.loc[(nodes["op_name"] == CAT) & nodes["input_dims"].notna(), ["rank", "step", "phase"]]
    for (rank, _), own in calls.groupby(["rank", "step"]):
        phases = own["phase"].astype(str).to_numpy()
        old, new = list(_lists(model, before, int(str(rank)))), list(_lists(model, after, int(str(rank))))
        for node, phase in zip(own.index.to_numpy(), phases, strict=True):
            place = next(
                (i for i, (when, shapes) in enumerate(old) if when == phase and _text(shapes) == dims[node]), None
            )
            if place is None:
                continue
            (_, was), (_, is_now) = old.pop(place), new.pop(place)
            dims[node], moved[node] = _text(is_now), moved[node] * _elements(is_now) / _elements(was)
            changed[node] = was != is_now
    return nodes.assign(input_dims=pd.Categorical(dims), bytes=moved), changed


def _lists(model: Model, placement: Placement, rank: int) -> Iterator[Listed]:
    """In the order of the calls on a rank."""
    parts = [model.parts(placement, other) for other in range(model.ranks)]
    batch = model.batch
    yield Phase.FORWARD, tuple((int(batch * part.pooling),) for own in parts for part in own)
    yield Phase.FORWARD, tuple((batch * model.ranks, part.columns) for part in parts[rank])
    for own in reversed(parts):
        yield Phase.BACKWARD, tuple((batch, part.columns) for part in own)
    yield Phase.BACKWARD, tuple((batch * sum(part.columns for part in own),) for own in parts)


def _text(shapes: tuple[Shape, ...]) -> str:
    return text((shapes, ()))


def _elements(shapes: tuple[Shape, ...]) -> float:
    return float(sum(np.prod(shape) for shape in shapes))
