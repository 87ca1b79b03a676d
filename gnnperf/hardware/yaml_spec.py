"""Plain values -> specifications, with every key and value checked before a spec exists."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, asdict, fields
from difflib import SequenceMatcher
from pathlib import Path

import gnnperf
from gnnperf.core import InputError, require
from gnnperf.hardware import spec
from gnnperf.hardware.strict_yaml import read_yaml

# Where the shipped YAML lies: `conf/` of a checkout, else `conf/` inside the installed package.

_PACKAGE = Path(gnnperf.__file__).resolve().parent
CANDIDATES = (_PACKAGE.parent / "conf", _PACKAGE / "conf")


def conf_dir(group: str) -> Path:
    """Folder of one configuration group, e.g. "hardware"; refuses an installation without it."""
    for candidate in CANDIDATES:
        if (candidate / group).is_dir():
            return candidate / group
    raise InputError(f"configuration folder {group!r} not found", where=" or ".join(str(c) for c in CANDIDATES),
                     remedy="reinstall gnnperf, or run it from a checkout")  # fmt: skip


DEVICE_GROUP, CLUSTER_GROUP, LINK_GROUP, HOST_GROUP = "hardware", "cluster", "link", "host"
COLLECTIVES_GROUP = "analytic/collective_models"  # no folder of its own: Hydra would take collectives=NAME for it
PLAN_GROUP = "plan"
GROUPS = (DEVICE_GROUP, CLUSTER_GROUP, LINK_GROUP, HOST_GROUP, PLAN_GROUP)
SUFFIXES = (".yaml", ".yml")
MOST_NAMED, LEAST_LIKE = 4, 0.6  # names in a message; difflib's own cutoff


def names_in(group: str) -> tuple[str, ...]:
    """Names of one group's shipped files, sorted."""
    return tuple(sorted(p.stem for p in conf_dir(group).glob("*.yaml")))


def is_path(name: str | Path) -> bool:
    """Whether a name is a user's own file: anything that ends in .yaml or .yml."""
    return Path(name).suffix in SUFFIXES


def path_of(name: str | Path, group: str) -> Path:
    """The file behind a name of the catalog, or a path as it is; refuses a name that the group does not have."""
    if is_path(name):
        return Path(name)
    names = names_in(group)
    if str(name) not in names:
        raise unknown_name(str(name), group, names)
    return conf_dir(group) / f"{name}.yaml"


def unknown_name(name: str, group: str, names: Sequence[str]) -> InputError:
    """The message for a name that a group does not have: the closest ones, all of them, and how to add one."""
    close = closest(name, names)
    kind = group.rpartition("/")[2]
    return InputError(
        f"no {kind} named {name!r}" + (f"; did you mean {' or '.join(close)}?" if close else ""),
        where=str(conf_dir(group)),
        allowed=", ".join(names),
        remedy=(f"add {name}.yaml there in the form of the others, or " if name.isidentifier() else "")
        + "give the path of a .yaml file of your own",
    )


def closest(name: str, names: Iterable[str]) -> list[str]:
    """Names spelled like `name`, as a whole or in as many first letters; best first, at most MOST_NAMED."""
    requested = name.lower().replace("-", "_").replace(" ", "_")
    alike = {
        known: max(SequenceMatcher(None, requested, known[:length]).ratio() for length in (None, len(requested)))
        for known in names
    }
    near = [known for known, share in alike.items() if share >= LEAST_LIKE]
    return sorted(near, key=lambda known: -alike[known])[:MOST_NAMED]


def in_a_row(links: Sequence[spec.LinkSpec], where: str) -> spec.LinkSpec:
    """The link that behaves like several in a row: the slowest rules, latencies add.

    A pipelined transfer keeps all of them busy, so only the slowest costs time; the first byte passes each.
    """
    require(len(links) > 0, where, "no link", "at least one link")
    slowest = min(links, key=lambda link: link.sustained_bytes_per_s)
    return spec.LinkSpec(
        name="+".join(link.name for link in links),
        bandwidth_bytes_per_s=slowest.bandwidth_bytes_per_s,
        latency_us=sum(link.latency_us for link in links),
        sustained_bandwidth_share=slowest.sustained_bandwidth_share,
        source="; ".join(dict.fromkeys(link.source for link in links)),
        medium=slowest.medium,
        bucket_bytes=slowest.bucket_bytes,
    )


LEAST, MOST = 1e-12, 1e24  # of a quantity other than 0, in its unit: beyond it a product or a quotient overflows
KINDS = ("gpu", "cpu")
DTYPES = ("float64", "float32", "float16", "bfloat16", "float8", "float4", "int8")
DTYPE_KEYS = tuple(dtype + unit for dtype in DTYPES for unit in ("", "_matrix"))

# key -> kind of value; required are those whose field has no default
DEVICE_KEYS = {
    "name": "text", "kind": "text", "flops_per_s": "rates", "memory_bandwidth_bytes_per_s": "positive",
    "l2_bytes": "positive", "num_sms": "count", "clock_hz": "positive", "memory_bytes": "positive",
    "power_limit_w": "positive or null", "architecture": "text", "lanes_per_sm": "count or null",
    "base_clock_hz": "positive or null", "matrix_clock_hz": "positive or null", "memory_bus_bits": "count or null",
    "memory_pin_bits_per_s": "positive or null", "sparse_matrix_speedup": "positive", "launch_floor_us": "not negative",
    "sustained_flops_share": "share", "sustained_bandwidth_share": "share", "aliases": "texts", "source": "text",
    "measured": "measured", "host": "measured", "provenance": "text mapping",
}  # fmt: skip
LINK_KEYS = {
    "name": "text", "bandwidth_bytes_per_s": "positive", "latency_us": "not negative",
    "sustained_bandwidth_share": "share", "source": "text", "medium": "medium", "in_network_reduction": "flag",
    "pair_bandwidth_bytes_per_s": "positive or null", "bucket_bytes": "positive or null",
}  # fmt: skip
HOST_KEYS = {
    "name": "text", "clock_hz": "positive", "work_per_clock": "positive", "num_cores": "count", "aliases": "texts",
    "source": "text", "memory_bandwidth_bytes_per_s": "positive or null",
}  # fmt: skip
CLUSTER_KEYS = {
    "name": "text", "device": "text", "intra": "link", "inter": "link", "host_link": "link", "ranks_per_node": "count",
    "host_speed": "positive", "nodes": "count or null", "host": "host",
    "default_for": "texts", "metadata": "text mapping", "collectives": "collectives", "all_reduce": "all_reduce",
    "host_sockets": "count or null", "storage": "link or null", "adapters_per_node": "count or null",
}  # fmt: skip
CHOICES: dict[str, tuple[object, ...]] = {
    "medium": (*spec.MEDIA, ""), "flag": (True, False), "all_reduce": (spec.FASTEST, spec.HIERARCHICAL),
}  # fmt: skip
REFERENCE_HOST = "epyc_7763"  # of the shipped host overheads (conf/analytic/gpu.yaml); unknown hosts count as it
PATH = "path"  # key of a link's mapping: links in a row
FROM_CATALOG = "link"  # key of a link's mapping: the shipped link that the other keys change


def device_from(raw: dict[str, object], where: str) -> spec.DeviceSpec:
    """A DeviceSpec from its mapping; refuses unknown and missing keys, wrong types, values out of range."""
    values = _checked(raw, DEVICE_KEYS, spec.DeviceSpec, where)
    if values["kind"] not in KINDS:
        raise InputError(f"kind is {values['kind']!r}", where=where, allowed=", ".join(KINDS))
    return spec.DeviceSpec(**values)  # type: ignore[arg-type]


def link_from(raw: object, where: str) -> spec.LinkSpec:
    """A LinkSpec: from its mapping, from the name of a shipped link (or a path), or from {link: NAME, changed keys}.

    {path: [link, link, ...]}: one after the other, as through adapter, switch and wide-area line.
    """
    if isinstance(raw, str):
        path = path_of(raw, LINK_GROUP)
        return link_from(read_yaml(path), str(path))
    if not isinstance(raw, dict):
        raise InputError(f"{raw!r} is not a link", where=where, allowed=f"a name, or {', '.join(LINK_KEYS)}")
    if PATH in raw:
        links = raw[PATH]
        if set(raw) != {PATH} or not isinstance(links, list):
            raise InputError(f"{raw!r} is not a path of links", where=where, allowed=f"{{{PATH}: [link, link, ...]}}")
        return in_a_row([link_from(each, f"{where}, {PATH}[{place}]") for place, each in enumerate(links)], where)
    if FROM_CATALOG not in raw:
        return spec.LinkSpec(**_checked(raw, LINK_KEYS, spec.LinkSpec, where))  # type: ignore[arg-type]
    shipped = link_from(str(raw[FROM_CATALOG]), where)
    changes = {key: value for key, value in raw.items() if key != FROM_CATALOG}
    return spec.LinkSpec(**_checked({**asdict(shipped), **changes}, LINK_KEYS, spec.LinkSpec, where))  # type: ignore[arg-type]


def host_from(raw: object, where: str) -> spec.HostSpec:
    """A HostSpec: from its mapping, or from the name of a shipped host (or a path)."""
    if isinstance(raw, str):
        path = path_of(raw, HOST_GROUP)
        return host_from(read_yaml(path), str(path))
    if not isinstance(raw, dict):
        raise InputError(f"{raw!r} is not a host", where=where, allowed=f"a name, or {', '.join(HOST_KEYS)}")
    return spec.HostSpec(**_checked(raw, HOST_KEYS, spec.HostSpec, where))  # type: ignore[arg-type]


def cluster_from(raw: dict[str, object], device: spec.DeviceSpec, where: str) -> spec.ClusterSpec:
    """A ClusterSpec of `device`s from its mapping.

    The host overheads hold for REFERENCE_HOST; another `host` moves them: host_speed, unless it is given, is the ratio
    of the two single-thread speeds.

    Raises:
        InputError: unknown or missing key, unknown name, wrong type, value out of range.
    """
    values = _checked(raw, CLUSTER_KEYS, spec.ClusterSpec, where)
    values.pop("default_for", None)
    host = values.get("host")
    if isinstance(host, spec.HostSpec) and "host_speed" not in values:
        reference = host_from(REFERENCE_HOST, where)
        values["host_speed"] = host.single_thread_speed / reference.single_thread_speed
    return spec.ClusterSpec(**{**values, "device": device})  # type: ignore[arg-type]


def _checked(raw: dict[str, object], keys: dict[str, str], made: type, where: str) -> dict[str, object]:
    for key in raw:
        if key not in keys:
            raise InputError(f"unknown key {key!r}", where=where, allowed=", ".join(keys))
    required = [f.name for f in fields(made) if f.default is MISSING and f.default_factory is MISSING]
    missing = [key for key in required if key not in raw]
    if missing:
        raise InputError(f"key {missing[0]!r} is missing", where=where, allowed=f"with {', '.join(required)}",
                         remedy="start from a file of the catalog and change single keys")  # fmt: skip
    return {key: _value(value, keys[key], f"{where}, key {key!r}") for key, value in raw.items()}


def _value(value: object, kind: str, where: str) -> object:
    if kind == "link or null" and value is None:
        return None
    structured: dict[str, Callable[[object, str], object]] = {
        "link": link_from, "link or null": link_from, "host": host_from, "measured": _measured, "rates": _rates,
        "collectives": _collectives,
    }  # fmt: skip
    if kind in structured:
        return structured[kind](value, where)
    if kind in ("text", "texts", "text mapping"):
        return _texts(value, kind, where)
    if kind in CHOICES:
        if not any(type(value) is type(choice) and value == choice for choice in CHOICES[kind]):
            raise InputError(f"{value!r} is not known", where=where, allowed=", ".join(map(str, CHOICES[kind])))
        return value
    kind, _, nullable = kind.partition(" or ")
    return None if nullable and value is None else _number(value, kind, where)


def _collectives(value: object, where: str) -> dict[str, str]:
    """Models by device; one name is for every device, null for none."""
    named = {} if value is None else value if isinstance(value, dict) else {spec.ANY_DEVICE: value}
    if not all(isinstance(text, str) for pair in named.items() for text in pair):
        allowed = "a name or a .yaml file, or a mapping of devices to them"
        raise InputError(f"{value!r} names no collective models", where=where, allowed=allowed)
    texts = {str(device): str(name) for device, name in named.items()}
    for name in texts.values():
        path_of(name, COLLECTIVES_GROUP)
    return texts


def _rates(value: object, where: str) -> dict[str, float]:
    if not isinstance(value, dict) or "float32" not in value:
        raise InputError(f"{value!r} is not a table of rates with at least float32", where=where)
    unknown = [k for k in value if k not in DTYPE_KEYS]
    if unknown:
        raise InputError(f"unknown dtype {unknown[0]!r}", where=where, allowed=", ".join(DTYPE_KEYS))
    return {str(k): float(_number(v, "positive", f"{where}, {k}")) for k, v in value.items()}


def _measured(value: object, where: str) -> dict[str, spec.Measured]:
    if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
        raise InputError(f"{value!r} is not a table of quantities", where=where)
    measured = {}
    for name, result in value.items():
        of = f"{where}, {name}"
        if not isinstance(result, dict) or set(result) != {"value", "low", "high"}:
            raise InputError(f"{result!r} is no measured quantity", where=of, allowed="value, low and high")
        middle, low, high = (float(_number(result[key], "not negative", of)) for key in ("value", "low", "high"))
        if not low <= middle <= high:
            raise InputError(f"value {middle} lies outside {low} to {high}", where=of, allowed="low <= value <= high")
        measured[name] = spec.Measured(middle, low, high)
    return measured


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
    if value != 0 and not LEAST <= abs(value) <= MOST:
        raise InputError(f"value {value} is out of range", where=where, allowed=f"{LEAST:g} to {MOST:g}")
    return int(value) if kind == "count" else float(value)
