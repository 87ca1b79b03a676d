"""AnalyticConstants: what the analytical model takes as given, its YAML form, and the values that ship."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from gnnperf.analytic.cpu_ops.files import prices_from_plain, prices_to_plain
from gnnperf.analytic.cpu_ops.prices import OpPrices
from gnnperf.core.errors import InputError
from gnnperf.core.files import write_text
from gnnperf.hardware.conf_folders import conf_dir
from gnnperf.hardware.strict_yaml import read_yaml, yaml_text

SEGMENTS = ("T1", "T2", "T3", "T4", "T5", "arrive", "exit")
LAG_CLASSES = ("launch", "stream", "event", "sync", "thread", "copy")
DEVICE_KINDS = ("gpu", "cpu")
GRAPH_LAUNCH = ("call", "kernel")
LARGEST = 1e12  # of any number: of us, twelve days
SEPARATOR = " | "  # in YAML, "T4 | aten::mm": segment and op


@dataclass(frozen=True)
class AnalyticConstants:
    """Constants of the analytical model.

    Attributes:
        host_overhead_us: (segment, op name) -> own host time of one such node.
        segment_us: segment -> host time of a node whose op is not in `host_overhead_us`.
        lag_us: device kind -> lag class -> delay along an edge of that class.
        graph_launch_us: of a call that launches a graph, "call", and of each "kernel" under it.
        collective_floor_us: device kind -> start-up of one collective, beside its hops.
        copy_floor_us: device kind -> start-up of one copy or memset, beside the link's latency.
        pageable_share: bandwidth of a copy from or to pageable host memory, relative to pinned.
        device_kind: kind of the devices whose runs these numbers hold for; "" any.
        roofline_power: p of the soft maximum (compute^p + memory^p)^(1/p); large p is the hard roofline.
        op_prices: what ops cost on a CPU; None: the roofline there, too.
        provenance: where the numbers come from.
    """

    host_overhead_us: dict[tuple[str, str], float] = field(default_factory=dict)
    segment_us: dict[str, float] = field(default_factory=dict)
    lag_us: dict[str, dict[str, float]] = field(default_factory=dict)
    graph_launch_us: dict[str, float] = field(default_factory=dict)
    collective_floor_us: dict[str, float] = field(default_factory=dict)
    copy_floor_us: dict[str, float] = field(default_factory=dict)
    pageable_share: float = 0.5
    roofline_power: float = 4.0
    op_prices: OpPrices | None = None
    device_kind: str = ""
    provenance: str = ""


@cache
def default_constants(device_kind: str = "gpu") -> AnalyticConstants:
    """The constants that ship for devices of a kind (DEVICE_KINDS): conf/analytic/gpu.yaml, cpu.yaml."""
    return load_constants(conf_dir("analytic") / f"{device_kind}.yaml")


def load_constants(path: Path) -> AnalyticConstants:
    """Read constants.

    Raises:
        InputError: not readable, an unknown or missing key, or a value that is no number from 0 up.
    """
    return constants_from_plain(read_yaml(path), str(path))


def constants_from_plain(raw: Mapping[str, object], where: str) -> AnalyticConstants:
    """The constants in a plain mapping: of a YAML file, or of a checkpoint.

    Args:
        raw: the mapping.
        where: it was read, for messages.

    Raises:
        InputError: an unknown or missing key, or a value that is no number from 0 up.
    """
    allowed = tuple(AnalyticConstants.__dataclass_fields__)
    for key in raw:
        if key not in allowed:
            raise InputError(f"unknown key {key!r}", where=where, allowed=", ".join(allowed))
    for key in allowed:
        if key not in raw:
            raise InputError(f"key {key!r} is missing", where=where)
    lags = _mapping(raw["lag_us"], where, "lag_us", DEVICE_KINDS)
    return AnalyticConstants(
        host_overhead_us=_overheads(raw["host_overhead_us"], where),
        segment_us=_numbers(raw["segment_us"], where, "segment_us", SEGMENTS),
        lag_us={kind: _numbers(lags[kind], where, f"lag_us.{kind}", LAG_CLASSES) for kind in DEVICE_KINDS},
        graph_launch_us=_numbers(raw["graph_launch_us"], where, "graph_launch_us", GRAPH_LAUNCH),
        collective_floor_us=_numbers(raw["collective_floor_us"], where, "collective_floor_us", DEVICE_KINDS),
        copy_floor_us=_numbers(raw["copy_floor_us"], where, "copy_floor_us", DEVICE_KINDS),
        pageable_share=_number(raw["pageable_share"], where, "pageable_share", above=1e-6),
        roofline_power=_number(raw["roofline_power"], where, "roofline_power", above=1.0),
        op_prices=None if raw["op_prices"] is None else prices_from_plain(raw["op_prices"], f"{where}, op_prices"),
        device_kind=_kind(raw["device_kind"], where),
        provenance=str(raw["provenance"]),
    )


def save_constants(constants: AnalyticConstants, path: Path) -> None:
    """Write constants as YAML: beside `path`, then renamed."""
    overheads = {SEPARATOR.join(key): round(value, 3) for key, value in sorted(constants.host_overhead_us.items())}
    raw = {
        "provenance": constants.provenance,
        "device_kind": constants.device_kind,
        "roofline_power": constants.roofline_power,
        "pageable_share": constants.pageable_share,
        "graph_launch_us": _rounded(constants.graph_launch_us),
        "collective_floor_us": constants.collective_floor_us,
        "copy_floor_us": constants.copy_floor_us,
        "lag_us": {kind: _rounded(lags) for kind, lags in constants.lag_us.items()},
        "segment_us": _rounded(constants.segment_us),
        "host_overhead_us": overheads,
        "op_prices": None if constants.op_prices is None else prices_to_plain(constants.op_prices),
    }
    write_text(path, yaml_text(raw))


def _kind(raw: object, where: str) -> str:
    if raw not in ("", *DEVICE_KINDS):
        raise InputError(f"value {raw!r}", where=f"{where}, key 'device_kind'", allowed=", ".join(DEVICE_KINDS))
    return str(raw)


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {key: round(value, 3) for key, value in values.items()}


def _overheads(raw: object, where: str) -> dict[tuple[str, str], float]:
    found = _mapping(raw, where, "host_overhead_us", ())
    result = {}
    for key, value in found.items():
        segment, separator, op = key.partition(SEPARATOR)
        if not separator or segment not in SEGMENTS:
            raise InputError(f"key {key!r}", where=f"{where}, host_overhead_us", allowed=f"SEGMENT{SEPARATOR}OP")
        result[segment, op] = _number(value, where, f"host_overhead_us.{key}")
    return result


def _numbers(raw: object, where: str, key: str, needed: tuple[str, ...]) -> dict[str, float]:
    return {k: _number(v, where, f"{key}.{k}") for k, v in _mapping(raw, where, key, needed).items()}


def _mapping(raw: object, where: str, key: str, needed: tuple[str, ...]) -> dict[str, object]:
    if not isinstance(raw, dict) or not all(isinstance(k, str) for k in raw):
        raise InputError("is not a mapping of names to values", where=f"{where}, key {key!r}")
    if needed and set(raw) != set(needed):
        odd = sorted(set(raw) ^ set(needed))
        raise InputError(
            f"missing or unknown: {', '.join(odd)}", where=f"{where}, key {key!r}", allowed=", ".join(needed)
        )
    return raw


def _number(raw: object, where: str, key: str, above: float | None = None) -> float:
    good = isinstance(raw, (int, float)) and not isinstance(raw, bool) and 0 <= raw <= LARGEST
    if not good or (above is not None and not float(raw) > above):  # type: ignore[arg-type]
        limit = "a number from 0 up" if above is None else f"a number above {above:g}"
        raise InputError(f"value {raw!r}", where=f"{where}, key {key!r}", allowed=limit)
    return float(raw)  # type: ignore[arg-type]
