"""How cold an op is: what its thread moved through the caches since it last ran the same op.

The code and the tables of an op leave a core's own caches as other work goes through them, so a small op costs 1 us
where it runs again at once (an optimizer's loop over small weights), and 8 us where megabytes were moved in between.

    add_ |mul_| add_ |== mm, 4 MB ==| add_
               ^ next to nothing     ^ 4 MB in between

A window stands for a run: what comes before the first call of an op is what follows its last one.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

LANE = ["rank", "thread"]
AT_ONCE = 0.0  # bytes between two calls of what is called again and again: op tables, calibrations


def between_bytes(nodes: pd.DataFrame) -> np.ndarray:
    """[n] bytes that the thread of each op moved since the end of its last call of that op.

    Args:
        nodes: [n] ops on CPUs (schema.NODE_COLUMNS), those of a thread in their order. Unknown bytes count nothing.
    """
    moved = nodes["bytes"].fillna(0.0)  # [n]
    lanes = [nodes[name] for name in LANE]
    same = [*lanes, nodes["op_name"].astype(object)]
    end = moved.groupby(lanes, observed=True).cumsum()  # [n] bytes moved up to the end of each op
    ends = end.groupby(same, observed=True, dropna=False)
    whole = moved.groupby(lanes, observed=True).transform("sum")
    last_end = ends.shift().fillna(ends.transform("last") - whole)  # of the window before, where there is none
    return (end - moved - last_end).clip(lower=0.0).to_numpy(float)
