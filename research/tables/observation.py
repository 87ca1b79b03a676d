"""What a measuring method sees of a kernel's own time."""

import numpy as np

from gnnperf.analytic.memory_bound.constants import EventGap

SHARPNESS = 8.0  # of the maximum below: host times scatter by some percent
# Class of a node -> what a pair of events around the node adds in NeuSight's node tables, another campaign than its op
# tables. Fitted on the forward nodes of P4, P100, V100, T4 and A100-40GB (`research.benchmarks.whole_models --gaps`).
NODE_GAPS = {
    "elementwise": EventGap(25.1, 0.38), "layer norm": EventGap(44.7, 0.39), "softmax": EventGap(20.2, 0.27),
    "linear": EventGap(46.3, 0.64), "bmm": EventGap(86.7, 0.47),
}  # fmt: skip


def between_events_us(device_us: np.ndarray, gap: EventGap) -> np.ndarray:
    """Time [n] us between two events recorded around one eager call, the stream being idle before.

    The first event is stamped when it is recorded, the kernel starts `issue_share` x `call_us` later, and the second
    event is stamped when the kernel has ended and the host has recorded it:

        host    |event|-- issue --|launch|-- rest of the call --|event|
        device                    |=== kernel ===|              ^ stamped here if the kernel is short
                                  |========== kernel ================| ^ here if it is long

    So it is max(call_us, issue + device_us), here a soft maximum. Queued calls (graph replay, a full queue) see
    `device_us` by itself, a profiler too.
    """
    issue_us = gap.call_us * gap.issue_share
    return (gap.call_us**SHARPNESS + (issue_us + device_us) ** SHARPNESS) ** (1.0 / SHARPNESS)
