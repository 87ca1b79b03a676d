"""Which few calls of a step to measure, so that they tell most about the rest of it.

Each family and dtype gets its share of the predicted device time, but LEAST_ROWS at least, since fewer correct nothing
(gnnperf.predict.similar); within it, calls nearest to the centers of k-means are taken. Labels play no part.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from gnnperf.analytic import UNRECORDED_DTYPE
from gnnperf.core import require
from gnnperf.predict.gaussian_process import LEAST_ROWS, choose
from gnnperf.predict.measured import tensor_shapes
from gnnperf.predict.similar import CALL, call_numbers, families
from gnnperf.predict.step_prediction import StepPrediction

SEED = 0


def calls_to_measure(answer: StepPrediction, count: int) -> Iterator[str]:
    """Lines of a list for `gnnperf calibrate --ops`, at most `count`; the family that takes longest first.

    Args:
        answer: what was predicted without them.
        count: of calls.

    Raises:
        InputError: fewer than one family needs.
    """
    require(count >= LEAST_ROWS, "--choose", count, f"a whole number >= {LEAST_ROWS}")
    nodes, base_us = answer.prediction.graph.nodes, answer.prediction.latency_us
    result = sorted(families(nodes, base_us), key=lambda places: -float(base_us[places].sum()))
    whole_us, left = sum(float(base_us[places].sum()) for places in result), count
    for places in result:
        own = max(LEAST_ROWS, round(count * float(base_us[places].sum()) / whole_us))
        for place in _chosen(answer, places, min(own, left)):
            left -= 1
            yield _line(*nodes.iloc[place][CALL])


def _chosen(answer: StepPrediction, places: np.ndarray, count: int) -> list[int]:
    """Nodes of distinct calls; none where so few would correct nothing."""
    nodes, base_us = answer.prediction.graph.nodes.iloc[places], answer.prediction.latency_us[places]
    numbers = call_numbers(nodes, base_us)
    single = ((nodes["num_siblings"] <= 1) & (nodes["opened_ops"] <= 0)).to_numpy()  # what a table can answer for
    distinct = nodes[CALL].astype(object).fillna("").reset_index(drop=True)[single].drop_duplicates().index.to_numpy()
    if min(count, len(distinct)) < LEAST_ROWS:
        return []
    chosen: list[int] = places[distinct[choose(numbers[distinct], min(count, len(distinct)), SEED)]].tolist()
    return chosen


def _line(op: str, input_dims: str, dtype: object) -> str:
    shapes = [list(shape) for shape in tensor_shapes(str(input_dims))]
    return json.dumps({"op": op, "shapes": shapes, "dtype": dtype if isinstance(dtype, str) else UNRECORDED_DTYPE})
