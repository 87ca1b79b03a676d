"""What a slice of the timeline says about its node: arguments, and a color (`cname`) of the trace-event format.

predicted slices   by where the latency came from (source)
measured slices    by how far the prediction is off; none where it is for other hardware, or nobody predicted it

Names of colors are those of catapult's color scheme. chrome://tracing draws them; Perfetto's own page colors by name
(https://github.com/google/perfetto/issues/624) and has source and error among the arguments, where a query finds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.core import Source
from gnnperf.predict import StepPrediction

MAX_TEXT = 500  # characters of a text (shapes, mostly)
COLOR_OF_SOURCE = {
    Source.MEASURED: "thread_state_running",
    Source.TRACE: "rail_animation",
    Source.SCALED: "rail_load",
    Source.GNN: "rail_response",
    Source.GNN_CALIBRATED: "thread_state_runnable",
    Source.ANALYTIC: "rail_idle",
    Source.DECLARED: "detailed_memory_dump",
    Source.UNCOVERED: "terrible",
    Source.CLASS_MEDIAN: "generic_work",
}
COLOR_OF_ERROR = ((0.1, "good"), (0.3, "bad"), (np.inf, "terrible"))  # |predicted / measured - 1| up to: color


class NodeArgs:
    """Arguments and colors of nodes, made for as many nodes at a time as are asked for.

    Args:
        answer: the prediction; errors are told where it is for the hardware of the trace.
    """

    def __init__(self, answer: StepPrediction) -> None:
        nodes, prediction = answer.prediction.graph.nodes, answer.prediction
        self._columns: dict[str, pd.Series] = {
            "op": nodes["op_name"],
            "source": pd.Series(pd.Categorical([str(source) for source in prediction.source])),
            "predicted_latency_us": pd.Series(prediction.latency_us),
            "measured_latency_us": nodes["latency_us"],
            "error": pd.Series(_errors(answer)),
            "waited_us": nodes["blocked_us"].where(nodes["blocked_us"] > 0),
            "event": nodes["event_name"],
            "shapes": nodes["input_dims"],
            "dtype": nodes["dtype"],
            "message_bytes": nodes["message_bytes"],
            "critical_us": pd.Series(answer.critical_us).where(answer.schedule.on_critical_path),
            "node_id": nodes["node_id"],
        }

    def of(self, node_id: np.ndarray) -> Iterator[dict[str, Any]]:
        """The arguments of each node of `node_id` [n]; what is unknown is left out."""
        found = list[dict[str, Any]]({} for _ in node_id)
        for key, column in self._columns.items():
            values = column.iloc[node_id]
            for row, value, known in zip(found, values.tolist(), values.notna(), strict=True):
                if known:
                    row[key] = value[:MAX_TEXT] if isinstance(value, str) else value
        yield from found


def color_of_source(args: dict[str, Any]) -> str:
    """The color of a predicted slice."""
    return COLOR_OF_SOURCE[Source(args["source"])]


def color_of_error(args: dict[str, Any]) -> str | None:
    """The color of a measured slice; None: no error is told."""
    error = args.get("error")
    return None if error is None else next(color for limit, color in COLOR_OF_ERROR if abs(error) <= limit)


def _errors(answer: StepPrediction) -> np.ndarray:
    """[num_nodes] predicted / measured - 1; NaN where nothing was measured, or on other hardware."""
    measured_us = answer.prediction.graph.nodes["latency_us"].to_numpy()
    comparable = (measured_us > 0) & (answer.measured_step_time_us is not None)
    ratio = np.full(len(measured_us), np.nan)
    np.divide(answer.prediction.latency_us, measured_us, out=ratio, where=comparable)
    return ratio - 1.0
