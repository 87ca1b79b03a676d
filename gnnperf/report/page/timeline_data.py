"""The timeline's slices and nodes, packed for report.html: columns of numbers, compressed, as base64.

    {"span_us": ..., "tick_us": ..., "words": {"name": [...], ...},
     "lanes": [{"rank": 0, "name": "stream 7 predicted", "kind": "predicted", "first": 0, "end": 812}, ...],
     "columns": [{"of": "slices", "name": "start", "type": "u4", "length": 812, "gaps": true}, ...],
     "packed": "H4sI..."}

Columns stand one behind the other in `packed` (gzip), each as the lowest bytes of all its values, then the next bytes,
and so on. `gaps`: differences from one value to the next. Both compress better than the values themselves. Slices refer
to nodes by row; of nodes only those that are drawn are in the file.
"""

import base64
import gzip
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Segment
from gnnperf.predict import StepPrediction
from gnnperf.report.text import shapes_text

MAX_TEXT = 300  # characters of a name or of shapes
NUM_TICKS = 2**32 - 1  # that a column of starts can count
LEVEL = 6
WORDS = {"shapes": "input_dims", **{name: name for name in ("phase", "source", "bound", "dtype", "family")}}
TIMES = {"latency_us": "latency_us", "low_us": "latency_low_us", "high_us": "latency_high_us",
         "measured_us": "measured_latency_us", "critical_us": "critical_us"}  # fmt: skip


@dataclass(frozen=True)
class _Column:
    of: str
    name: str
    values: np.ndarray
    gaps: bool = False


def timeline_data(prediction: StepPrediction, nodes: pd.DataFrame, slices: pd.DataFrame) -> dict[str, Any]:
    """Everything that timeline_*.js draw: predicted and measured slices (`timeline.tracks`), lane by lane."""
    opens_ns = min(int(slices["start_ns"].min()), 0) if len(slices) else 0
    closes_ns = max(int(slices["end_ns"].max()), round(prediction.schedule.makespan_us * 1000)) if len(slices) else 0
    tick_ns = max(1, -(-(closes_ns - opens_ns) // NUM_TICKS))
    drawn = np.zeros(len(nodes), dtype=bool)
    drawn[slices["node_id"].to_numpy(np.int64)] = True
    words, columns = _nodes(nodes.loc[drawn, [*WORDS.values(), *TIMES.values(), "segment", "node_type"]])
    names, name_columns = _slices(slices, np.cumsum(drawn) - 1, opens_ns, tick_ns)
    first = np.flatnonzero(np.r_[True, np.diff(slices["tid"].to_numpy()) != 0][: len(slices)])
    heads, ends = slices.iloc[first], np.append(first[1:], len(slices))
    lanes = zip(heads["rank"], heads["track"], heads["kind"], first, ends, strict=True)
    packed, parts = [*name_columns, *columns], []
    for column in packed:
        values = column.values
        if column.gaps:
            values = np.diff(values, prepend=values.dtype.type(0))  # modulo 2^32
        by_value = values.astype(values.dtype.newbyteorder("<")).view(np.uint8).reshape(len(values), values.itemsize)
        parts.append(by_value.T.tobytes())
    compressed = gzip.compress(b"".join(parts), LEVEL, mtime=0)  # the same for the same prediction
    return {
        "opens_us": opens_ns / 1000,
        "span_us": (closes_ns - opens_ns) / 1000,
        "step_opens_us": prediction.schedule.makespan_us - prediction.step_time_us,
        "step_closes_us": prediction.schedule.makespan_us,
        "tick_us": tick_ns / 1000,
        "lanes": [{"rank": int(r), "name": t, "kind": k, "first": int(f), "end": int(e)} for r, t, k, f, e in lanes],
        "words": {"name": names, **words},
        "columns": [
            {"of": c.of, "name": c.name, "type": c.values.dtype.str[1:], "length": len(c.values), "gaps": c.gaps}
            for c in packed
        ],
        "packed": base64.b64encode(compressed).decode("ascii"),
    }


def _slices(slices: pd.DataFrame, row_of: np.ndarray, opens_ns: int, tick_ns: int) -> tuple[list[str], list[_Column]]:
    start = (slices["start_ns"].to_numpy() - opens_ns) // tick_ns
    length = (slices["end_ns"].to_numpy() - opens_ns) // tick_ns - start
    code, names = pd.factorize(slices["name"])
    node = row_of[slices["node_id"].to_numpy(np.int64)]
    return _short(names), [
        _Column("slices", "start", start.astype(np.uint32), gaps=True),
        _Column("slices", "length", length.astype(np.uint32)),
        _Column("slices", "node", node.astype(np.uint32), gaps=True),
        _Column("slices", "name", code.astype(np.uint32)),
    ]


def _nodes(nodes: pd.DataFrame) -> tuple[dict[str, list[str]], list[_Column]]:
    """Words by column, and columns: numbers of words (0: none), times in us; an unknown column is left out."""
    words, columns = {}, []
    waits = nodes["segment"].isin([str(Segment.ARRIVE), str(Segment.PEER_WAIT)])
    names = {NodeType.COMM: "exit", NodeType.COLLECTIVE: "transfer", NodeType.MEMORY: "copy"}
    look_of = {str(kind): names.get(kind, str(kind)) for kind in NodeType}
    kinds = nodes["node_type"].astype("category").cat.rename_categories(look_of)
    looks = kinds.cat.add_categories("wait").mask(waits, "wait")
    for name, column in {**{name: nodes[column] for name, column in WORDS.items()}, "look": looks}.items():
        code, result = pd.factorize(column)
        words[name] = ["", *_short(map(shapes_text, result) if name == "shapes" else result)]
        columns.append(_Column("nodes", name, (code + 1).astype(np.uint16 if len(result) < 2**16 - 1 else np.uint32)))
    for name, column_name in TIMES.items():
        if nodes[column_name].notna().any():
            columns.append(_Column("nodes", name, nodes[column_name].to_numpy(np.float32)))
    return words, columns


def _short(texts: Iterable[object]) -> list[str]:
    return [text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..." for text in map(str, texts)]
