"""Read specification YAML: safe, with every key and value checked before a spec exists."""

from __future__ import annotations

import math
from pathlib import Path

import yaml

from gnnperf.errors import InputError
from gnnperf.hardware.spec import ClusterSpec, DeviceSpec, LinkSpec, Measured

MAX_FILE_BYTES = 1 << 20
KINDS = ("gpu", "cpu")
DTYPE_KEYS = tuple(
    key + unit for key in ("float64", "float32", "float16", "bfloat16", "float8", "int8") for unit in ("", "_matrix")
)

# key -> (kind of value, required)
DEVICE_KEYS = {
    "name": ("text", True), "kind": ("text", True), "flops_per_s": ("rates", True),
    "memory_bandwidth_bytes_per_s": ("positive", True), "l2_bytes": ("positive", True), "num_sms": ("count", True),
    "clock_hz": ("positive", True), "memory_bytes": ("positive", True), "power_limit_w": ("positive or null", False),
    "launch_floor_us": ("not negative", False), "sustained_flops_share": ("share", False),
    "sustained_bandwidth_share": ("share", False), "aliases": ("texts", False), "source": ("text", False),
    "measured": ("measured", False), "host": ("measured", False), "provenance": ("text mapping", False),
}  # fmt: skip
LINK_KEYS = {
    "name": ("text", True), "bandwidth_bytes_per_s": ("positive", True), "latency_us": ("not negative", True),
    "sustained_bandwidth_share": ("share", False), "source": ("text", False),
}  # fmt: skip
CLUSTER_KEYS = {
    "name": ("text", True), "device": ("text", True), "intra": ("link", True), "inter": ("link", True),
    "host_link": ("link", True), "ranks_per_node": ("count", False), "host_speed": ("positive", False),
    "default_for": ("texts", False), "metadata": ("text mapping", False),
}  # fmt: skip


def read_yaml(path: Path) -> dict[str, object]:
    """The mapping in a YAML file.

    Raises:
        InputError: no such file, too large, not YAML, or not a mapping.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"file has more than {MAX_FILE_BYTES} bytes", where=str(path), remedy="name a YAML file")
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({error})", where=str(path), remedy="check path and permissions") from None
    except (yaml.YAMLError, RecursionError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"is not YAML ({line})", where=str(path)) from None
    if not isinstance(found, dict) or not all(isinstance(k, str) for k in found):
        raise InputError("is not a mapping of names to values", where=str(path))
    return found


def device_from(raw: dict[str, object], where: str) -> DeviceSpec:
    """A DeviceSpec from its mapping.

    Raises:
        InputError: unknown or missing key, wrong type, value out of range.
    """
    values = _checked(raw, DEVICE_KEYS, where)
    if values["kind"] not in KINDS:
        raise InputError(f"kind is {values['kind']!r}", where=where, allowed=", ".join(KINDS))
    return DeviceSpec(**values)  # type: ignore[arg-type]


def link_from(raw: object, where: str) -> LinkSpec:
    """A LinkSpec from its mapping."""
    if not isinstance(raw, dict):
        raise InputError(f"{raw!r} is not a link", where=where, allowed=", ".join(LINK_KEYS))
    return LinkSpec(**_checked(raw, LINK_KEYS, where))  # type: ignore[arg-type]


def cluster_from(raw: dict[str, object], device: DeviceSpec, where: str) -> ClusterSpec:
    """A ClusterSpec of `device`s from its mapping."""
    values = _checked(raw, CLUSTER_KEYS, where)
    values.pop("default_for", None)
    return ClusterSpec(**{**values, "device": device})  # type: ignore[arg-type]


def _checked(raw: dict[str, object], keys: dict[str, tuple[str, bool]], where: str) -> dict[str, object]:
    for key in raw:
        if key not in keys:
            raise InputError(f"unknown key {key!r}", where=where, allowed=", ".join(keys))
    for key, (_, required) in keys.items():
        if required and key not in raw:
            raise InputError(f"key {key!r} is missing", where=where)
    return {key: _value(value, keys[key][0], f"{where}, key {key!r}") for key, value in raw.items()}


def _value(value: object, kind: str, where: str) -> object:
    if kind == "link":
        return link_from(value, where)
    if kind == "measured":
        return _measured(value, where)
    if kind == "rates":
        return _rates(value, where)
    if kind in ("text", "texts", "text mapping"):
        return _texts(value, kind, where)
    return None if kind == "positive or null" and value is None else _number(value, kind, where)


def _rates(value: object, where: str) -> dict[str, float]:
    if not isinstance(value, dict) or "float32" not in value:
        raise InputError(f"{value!r} is not a table of rates with at least float32", where=where)
    unknown = [k for k in value if k not in DTYPE_KEYS]
    if unknown:
        raise InputError(f"unknown dtype {unknown[0]!r}", where=where, allowed=", ".join(DTYPE_KEYS))
    return {str(k): float(_number(v, "positive", f"{where}, {k}")) for k, v in value.items()}


def _measured(value: object, where: str) -> dict[str, Measured]:
    if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
        raise InputError(f"{value!r} is not a table of quantities", where=where)
    return {quantity: _quantity(found, f"{where}, {quantity}") for quantity, found in value.items()}


def _quantity(found: object, where: str) -> Measured:
    if not isinstance(found, dict) or set(found) != {"value", "low", "high"}:
        raise InputError(f"{found!r} is no measured quantity", where=where, allowed="value, low and high")
    value, low, high = (float(_number(found[key], "not negative", where)) for key in ("value", "low", "high"))
    if not low <= value <= high:
        raise InputError(f"value {value} lies outside {low} to {high}", where=where, allowed="low <= value <= high")
    return Measured(value, low, high)


def _texts(value: object, kind: str, where: str) -> object:
    if kind == "text" and isinstance(value, str):
        return value
    if kind == "texts" and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if kind == "text mapping" and isinstance(value, dict) and all(isinstance(v, str) for v in value.values()):
        return {str(k): v for k, v in value.items()}
    raise InputError(f"{value!r} has type {type(value).__name__}", where=where, allowed=kind)


def _number(value: object, kind: str, where: str) -> float | int:
    if isinstance(value, str):  # YAML 1.1 reads 9e11 as text, because the exponent has no sign
        try:
            value = float(value)
        except ValueError:
            raise InputError(f"{value!r} is not a number", where=where, allowed=f"a number: {kind}") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{value!r} has type {type(value).__name__}", where=where, allowed=f"a number: {kind}")
    ranges = {
        "count": value >= 1 and value == int(value) if math.isfinite(value) else False,
        "share": 0 < value <= 1,
        "not negative": value >= 0,
    }
    if not math.isfinite(value) or not ranges.get(kind, value > 0):
        raise InputError(f"value {value} is out of range", where=where, allowed=f"a number: {kind}")
    return int(value) if kind == "count" else float(value)
