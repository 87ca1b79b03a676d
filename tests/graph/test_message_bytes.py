"""Bytes that each rank sends into a collective, from what the trace says of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gnnperf.graph.event_columns import rank_events
from gnnperf.graph.node_tables import message_bytes
from tests.traces import all_reduce, mark, trace


@pytest.mark.parametrize(
    ("kind", "sent", "received", "expected"),
    [
        ("all_to_all", 10.0, np.nan, 40.0),
        ("all_reduce", np.nan, 10.0, 40.0),
        ("all_gather", 10.0, 80.0, 40.0),  # one rank's part
        ("all_gather", np.nan, 80.0, np.nan),  # the whole output says nothing without the group
        ("reduce_scatter", np.nan, 10.0, np.nan),
    ],
)
def test_message_bytes(kind: str, sent: float, received: float, expected: float) -> None:
    table = trace(mark(0, 0, 100), all_reduce(20, 30, size=4))
    events = table.events
    is_comm = events["collective"].notna().to_numpy()
    text = [(kind, "float32") if comm else (None, None) for comm in is_comm]
    changed = events.assign(
        collective=pd.Categorical([t[0] for t in text]),
        in_elements=np.where(is_comm, sent, np.nan), out_elements=np.where(is_comm, received, np.nan),
        comm_dtype=pd.Categorical([t[1] for t in text]),
    )  # fmt: skip
    result = message_bytes(rank_events(replace(table, events=changed), 0))
    assert result[is_comm] == pytest.approx([expected], nan_ok=True)
