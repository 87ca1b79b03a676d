"""What is measured: one op at one size, or one collective of one group. Plain values, so that they travel as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

Shape = tuple[int, ...]


class Direction(StrEnum):
    """Of an op: the call itself, or the gradient of all its floating inputs."""

    FORWARD = "forward"
    BACKWARD = "backward"


class Cache(StrEnum):
    """What the last-level cache held when timing began: the call's own inputs, or something else."""

    WARM = "warm"
    FLUSHED = "flushed"


@dataclass(frozen=True)
class OpPoint:
    """One op at one size.

    Attributes:
        op: as in traces, e.g. "aten::mm", or with its overload "aten::add.out".
        shapes: one per tensor argument, in the order of the op's schema; None for an optional tensor left out.
        dtypes: of these tensors.
        arguments: the other arguments, by name of the schema; what is left out takes the schema's default.
        direction: forward, or the gradient.
        tables: so many calls in turn, each with tensors of its own (tables compete for the cache); times are per call.
        skew: access of integer inputs: row = floor(rows u^skew), u uniform; 1 is uniform, larger is hotter.
        tf32: products in float32 may use TF32.
        transposed: places of tensors that lie in memory column by column (the last two axes are exchanged).
        flops: of one call; None unknown.
        moved_bytes: read and written at least; None unknown.
    """

    op: str
    shapes: tuple[Shape | None, ...]
    dtypes: tuple[str, ...]
    arguments: tuple[tuple[str, Any], ...] = ()
    direction: Direction = Direction.FORWARD
    tables: int = 1
    skew: float = 1.0
    tf32: bool = False
    transposed: tuple[int, ...] = ()
    flops: float | None = None
    moved_bytes: float | None = None


@dataclass(frozen=True)
class CommPoint:
    """One collective, or a send/receive, of one group.

    Attributes:
        op: name of CollectiveKind.
        num_bytes: of one rank's input (all_gather: its own part; reduce_scatter: all parts).
        ranks: ranks of the group, in the order of its members.
        link: what joins them: "lo", "0.25g", or a GPU topology's word ("NV18", "PIX").
    """

    op: str
    num_bytes: int
    ranks: tuple[int, ...]
    link: str


@dataclass(frozen=True)
class HostPoint:
    """A cost of the host that is no single op: see gnnperf.record.calibrate.job."""

    quantity: str


Point = OpPoint | CommPoint | HostPoint
_KINDS: dict[str, type[OpPoint] | type[CommPoint] | type[HostPoint]] = {
    kind.__name__: kind for kind in (OpPoint, CommPoint, HostPoint)
}


@dataclass(frozen=True)
class Reading:
    """One point's median in one round.

    Attributes:
        point: what.
        cache: before each call.
        launch_included: True: from the call to the end of its work, seen by the host; False: the device's own time.
        latency_us: median over the samples, of one call.
        num_samples: how many.
    """

    point: Point
    cache: Cache
    launch_included: bool
    latency_us: float
    num_samples: int


def to_json(point: Point) -> str:
    """One line; equal points give equal lines."""
    return json.dumps({"kind": type(point).__name__, **asdict(point)}, sort_keys=True)


def from_json(line: str) -> Point:
    """The point of a line that `to_json` wrote."""
    values: dict[str, Any] = json.loads(line)
    kind = _KINDS[values.pop("kind")]
    if kind is OpPoint:
        values["direction"] = Direction(values["direction"])
    return kind(**{key: frozen(value) for key, value in values.items()})


def frozen(value: Any) -> Any:
    """Lists become tuples, at every depth."""
    return tuple(frozen(v) for v in value) if isinstance(value, list | tuple) else value


def reading_to_json(reading: Reading) -> str:
    """One line."""
    return json.dumps({"point": to_json(reading.point), "cache": reading.cache,
                       "launch_included": reading.launch_included, "latency_us": reading.latency_us,
                       "num_samples": reading.num_samples})  # fmt: skip


def reading_from_json(line: str) -> Reading:
    """The reading of a line that `reading_to_json` wrote."""
    values: Mapping[str, Any] = json.loads(line)
    return Reading(from_json(values["point"]), Cache(values["cache"]), values["launch_included"],
                   values["latency_us"], values["num_samples"])  # fmt: skip


def op_point(op: str, shapes: Sequence[Shape | None], dtype: str, **more: Any) -> OpPoint:
    """An OpPoint whose tensors all have one dtype."""
    return OpPoint(op, tuple(shapes), (dtype,) * len(shapes), **more)
