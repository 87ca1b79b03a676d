"""Which events are collectives, of which kind, group, size and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnperf.trace.assemble import Assembled
from gnnperf.trace.columns import categorical
from gnnperf.trace.linking import Links
from gnnperf.trace.metadata import Distributed


def add_collectives(table: Assembled, links: Links, distributed: Distributed, dropped: dict[str, int]) -> dict[str, Any]:
    """TODO"""
    none = categorical(np.full(len(table.kind), -1), [])
    return {"collective": none, "group": none, "comm_dtype": none}
