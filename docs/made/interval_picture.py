"""How an interval comes about: what nodes of held-out runs missed, and the bounds that follow from it."""

from __future__ import annotations

import math

import numpy as np

from docs.made.drawing import INK, LEFT, PALE, RIGHT, WIDTH, picture, rectangle, text
from gnnperf.gnn.intervals.nodes import two_sided

NUM_NODES, SPREAD, LEVEL, SEED = 119, 0.08, 0.9, 0
PREDICTED_US = 50.0
HEIGHT, LINE, WIDEST = 130.0, 52.0, 0.30  # px; |log error| at the picture's edge


def interval_picture() -> str:
    """Misses drawn at random, the bounds that `two_sided` reads off them, and a prediction between these bounds."""
    misses = np.random.default_rng(SEED).normal(0.0, SPREAD, NUM_NODES)  # [num_nodes] log(measured / predicted)
    low, high = two_sided(misses, LEVEL)
    parts = [rectangle(_x(low), LINE - 16, _x(high) - _x(low), 32, "#c5e1a5", about="interval")]
    parts += [f'<line x1="{LEFT:g}" y1="{LINE:g}" x2="{WIDTH - RIGHT:g}" y2="{LINE:g}" stroke="{PALE}"/>']
    parts += [f'<circle cx="{_x(miss):.1f}" cy="{LINE:g}" r="3.5" fill="{INK}" fill-opacity="0.6"/>' for miss in misses]
    for bound in (low, 0.0, high):
        parts.append(
            text(_x(bound), LINE - 24, f"{math.exp(bound) - 1:+.1%}" if bound else "as predicted", anchor="middle")
        )
        parts.append(text(_x(bound), LINE + 34, f"{PREDICTED_US * math.exp(bound):.1f} us", anchor="middle"))
    dots = f"a dot: measured / predicted of one of {NUM_NODES} nodes of held-out runs, drawn at random"
    parts.append(text(LEFT, LINE + 62, f"{dots}; band: where one more node lies with probability {LEVEL:.0%}"))
    parts.append(text(LEFT - 10, LINE + 34, "predicted", anchor="end"))
    parts.append(text(LEFT - 10, LINE - 24, "error", anchor="end"))
    return picture("Errors of nodes of held-out runs and the interval that they give", HEIGHT, parts)


def _x(log_error: float) -> float:
    return LEFT + (log_error + WIDEST) / (2 * WIDEST) * (WIDTH - LEFT - RIGHT)
