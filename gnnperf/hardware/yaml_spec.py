"""Plain values -> specifications, with every key and value checked before a spec exists."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TypeVar

import gnnperf
from gnnperf.core import InputError, require, require_numbers
from gnnperf.hardware import spec
from gnnperf.hardware.sections import closest, keys_in, list_of, section, value_as
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
OF_RUNS, DEFAULT_FOR = "core_sets", "default_for"  # what no file states; what is of files only
CLUSTER_KEYS = (*(f.name for f in fields(spec.ClusterSpec) if f.name != OF_RUNS), DEFAULT_FOR)
LINKS = ("intra", "inter", "host_link", "storage")
ALGORITHMS = (spec.FASTEST, spec.HIERARCHICAL)
REFERENCE_HOST = "epyc_7763"  # of the shipped host overheads (conf/analytic/gpu.yaml); unknown hosts count as it
PATH = "path"  # key of a link's mapping: links in a row
FROM_CATALOG = "link"  # key of a link's mapping: the shipped link that the other keys change
SpecT = TypeVar("SpecT")


def device_from(raw: object, where: str) -> spec.DeviceSpec:
    """A DeviceSpec from its mapping; refuses unknown and missing keys, wrong types, values out of range."""
    device = _spec(spec.DeviceSpec, raw, where)
    require(device.kind in KINDS, f"{where}.kind", device.kind, ", ".join(KINDS))
    keys_in(device.flops_per_s, DTYPE_KEYS, f"{where}.flops_per_s", needed=("float32",))
    for name, one in (*device.measured.items(), *device.host.items()):
        require(one.low <= one.value <= one.high, f"{where}.{name}", one.value, f"{one.low} to {one.high}, its bounds")
    return device


def link_from(raw: object, where: str) -> spec.LinkSpec:
    """A LinkSpec: from its mapping, from the name of a shipped link (or a path), or from {link: NAME, changed keys}.

    {path: [link, link, ...]}: one after the other, as through adapter, switch and wide-area line.
    """
    if isinstance(raw, str):
        path = path_of(raw, LINK_GROUP)
        return link_from(read_yaml(path), str(path))
    if isinstance(raw, Mapping) and PATH in raw:
        links = list_of(keys_in(raw, (PATH,), where)[PATH], f"{where}.{PATH}")
        return in_a_row([link_from(each, f"{where}.{PATH}[{place}]") for place, each in enumerate(links)], where)
    if isinstance(raw, Mapping) and FROM_CATALOG in raw:
        shipped = asdict(link_from(str(raw[FROM_CATALOG]), where))
        raw = {**shipped, **{key: value for key, value in raw.items() if key != FROM_CATALOG}}
    link = _spec(spec.LinkSpec, raw, where)
    require(link.medium in (*spec.MEDIA, ""), f"{where}.medium", link.medium, ", ".join(spec.MEDIA))
    return link


def host_from(raw: object, where: str) -> spec.HostSpec:
    """A HostSpec: from its mapping, or from the name of a shipped host (or a path)."""
    if isinstance(raw, str):
        path = path_of(raw, HOST_GROUP)
        return host_from(read_yaml(path), str(path))
    return _spec(spec.HostSpec, raw, where)


def cluster_from(raw: object, device: spec.DeviceSpec, where: str) -> spec.ClusterSpec:
    """A ClusterSpec of `device`s from its mapping.

    The host overheads hold for REFERENCE_HOST; another `host` moves them: host_speed, unless it is given, is the ratio
    of the two single-thread speeds.

    Raises:
        InputError: unknown or missing key, unknown name, wrong type, value out of range.
    """
    values = {**keys_in(raw, CLUSTER_KEYS, where), "device": device}
    value_as(values.pop(DEFAULT_FOR, []), tuple[str, ...], f"{where}.{DEFAULT_FOR}")
    for key in LINKS:
        if values.get(key) is not None:
            values[key] = link_from(values[key], f"{where}.{key}")
    if values.get("host") is not None:
        host = values["host"] = host_from(values["host"], f"{where}.host")
        speed = host.single_thread_speed / host_from(REFERENCE_HOST, where).single_thread_speed
        values.setdefault("host_speed", speed)
    named = values.pop("collectives", None)  # models by device; one name is for every device, null for none
    if named is not None:
        values["collectives"] = named if isinstance(named, Mapping) else {spec.ANY_DEVICE: named}
    cluster = _spec(spec.ClusterSpec, values, where)
    for name in cluster.collectives.values():
        path_of(name, COLLECTIVES_GROUP)
    require(cluster.all_reduce in ALGORITHMS, f"{where}.all_reduce", cluster.all_reduce, ", ".join(ALGORITHMS))
    return cluster


def _spec(kind: type[SpecT], raw: object, where: str) -> SpecT:
    result = section(kind, raw, where)
    require_numbers(asdict(result), where, LEAST, MOST)  # type: ignore[call-overload]
    return result
