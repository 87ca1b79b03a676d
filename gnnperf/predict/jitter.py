"""`jitter=`: how much equal ranks differ, as the user says it or as the trace tells."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gnnperf.core import InputError
from gnnperf.graph import ExecutionGraph, Prediction
from gnnperf.predict.whatif import read_settings
from gnnperf.schedule import Jitter, arrival_lags_us, jitter_of

TRACE = "trace"
PARTS = tuple(field.name for field in dataclasses.fields(Jitter))
FORM = f"{TRACE}, or {{host:{{rank_share:0.02,moment_us:5}},device:{{rank_share:0.01}}}}"
WAITS = "Jitter: a group waits for the last of its ranks, who differ ({}); an extrapolation in their number."


def check_jitter(raw: Any) -> None:
    """Refuse what `requested_jitter` would, before any file is read."""
    if raw != TRACE:
        _read(raw)


def requested_jitter(raw: Any, graph: ExecutionGraph) -> Jitter | None:
    """The jitter to predict with; None: none is requested."""
    if raw is None:
        return None
    return jitter_of(graph) if raw == TRACE else _read(raw)


def with_waits(prediction: Prediction, jitter: Jitter, *, repeats: bool) -> Prediction:
    """The prediction with waits for the last rank as lags of the edges into transfers; says how much ranks differ."""
    known_us = np.nan_to_num(prediction.scheduled_us, nan=0.0)
    waits_us = arrival_lags_us(prediction.graph, known_us, prediction.lag_us, jitter, repeats=repeats)
    sentences = "; ".join(
        f"{part} {100 * spread.rank_share:.2g} % of a step, variance of {spread.moment_us:.2g} us per us"
        for part, spread in ((part, getattr(jitter, part)) for part in PARTS)
    )
    return replace(
        prediction, lag_us=prediction.lag_us + waits_us, warnings=(*prediction.warnings, WAITS.format(sentences))
    )


def _read(raw: Any) -> Jitter:
    if not isinstance(raw, Mapping) or not raw:
        raise InputError(f"bad value {raw!r}", where="jitter", allowed=FORM)
    return read_settings(Jitter, raw, "jitter")
