"""CollectiveConstants as YAML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path

from gnnperf.analytic.collective.constants import CollectiveConstants, MeasuredLink
from gnnperf.analytic.collective.law import CollectiveLaw, ProtocolSwitch
from gnnperf.core.errors import InputError
from gnnperf.core.files import write_text
from gnnperf.hardware.named import LAWS_GROUP, is_path, path_of
from gnnperf.hardware.spec import ClusterSpec
from gnnperf.hardware.strict_yaml import read_yaml, yaml_text

SEPARATOR = " | "  # "all_reduce | nvlink", "all_reduce | 8 | 1": kind and link; kind, ranks, machines
KEYS = ("provenance", "measured_inside", "measured_between", "between", "inside", "rings", "laws", "groups")
DIGITS = 6  # significant


def save_collectives(constants: CollectiveConstants, path: Path) -> None:
    """Write the laws of a platform, whole or not at all."""
    raw = {
        "provenance": constants.provenance,
        "measured_inside": asdict(constants.measured_inside),
        "measured_between": asdict(constants.measured_between),
        "between": constants.between,
        "inside": [[largest, link] for largest, link in constants.inside],
        "rings": dict(constants.rings),
        "laws": {SEPARATOR.join(key): _rounded(asdict(law)) for key, law in constants.laws.items()},
        "groups": {SEPARATOR.join(map(str, key)): _rounded(asdict(law)) for key, law in constants.groups.items()},
    }
    write_text(path, yaml_text(raw, flow=None))


def load_collectives(path: Path) -> CollectiveConstants:
    """Read the laws of a platform.

    Raises:
        InputError: not readable, a key is missing or unknown, a number is none or out of range.
    """
    raw = read_yaml(path)
    _exactly(raw, KEYS, str(path))
    laws = {_key(name, 2, path): _law(value, f"{path}, laws.{name}") for name, value in _items(raw, "laws", path)}
    groups = {_key(name, 3, path): _law(value, f"{path}, groups.{name}") for name, value in _items(raw, "groups", path)}
    try:
        return CollectiveConstants(
            measured_inside=_link(raw["measured_inside"], f"{path}, measured_inside"),
            measured_between=_link(raw["measured_between"], f"{path}, measured_between"),
            laws={(kind, link): law for (kind, link), law in laws.items()},
            groups={(kind, int(ranks), int(nodes)): law for (kind, ranks, nodes), law in groups.items()},
            inside=tuple((int(largest), str(link)) for largest, link in raw["inside"]),  # type: ignore[attr-defined]
            between=str(raw["between"]),
            rings={int(ranks): int(rings) for ranks, rings in raw["rings"].items()},  # type: ignore[attr-defined]
            provenance=str(raw["provenance"]),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"inside, rings or groups cannot be read ({error})", where=str(path)) from None


@cache
def shipped_collectives(name: str) -> CollectiveConstants:
    """Laws by name, from conf/analytic/collective_laws; these files do not change while a process runs.

    Raises:
        InputError: unknown name (with the closest ones).
    """
    return load_collectives(path_of(name, LAWS_GROUP))


def laws_of(cluster: ClusterSpec) -> CollectiveConstants | None:
    """The laws that the cluster names, on its own links; None: it names none.

    Raises:
        InputError: unknown name, or a file that cannot be read.
    """
    name = cluster.collective_laws
    if name is None:
        return None
    return laws_named(name).on(cluster)


def laws_named(name: str) -> CollectiveConstants:
    """Laws by name, or of a .yaml file.

    Raises:
        InputError: unknown name (with the closest ones), or a file that cannot be read.
    """
    return load_collectives(Path(name)) if is_path(name) else shipped_collectives(name)


def _link(raw: object, where: str) -> MeasuredLink:
    names = tuple(field.name for field in fields(MeasuredLink))
    found = _exactly(raw, names, where)
    medium, *numbers = (found[name] for name in names)
    bandwidth, latency_us = (_number(value, f"{where}, {name}") for name, value in zip(names[1:], numbers, strict=True))
    if not isinstance(medium, str) or bandwidth == 0:
        raise InputError(f"value {raw!r}", where=where, allowed="medium, a text, and a bandwidth above 0")
    return MeasuredLink(medium, bandwidth, latency_us)


def _rounded(law: dict[str, object]) -> dict[str, object]:
    """Numbers to DIGITS significant digits, switches alike."""
    return {
        name: [_rounded(each) for each in value] if isinstance(value, (list, tuple)) else float(f"{value:.{DIGITS}g}")
        for name, value in law.items()
    }


def _key(name: str, parts: int, path: Path) -> tuple[str, ...]:
    found = tuple(name.split(SEPARATOR))
    if len(found) != parts:
        allowed = SEPARATOR.join(("KIND", "LINK") if parts == 2 else ("KIND", "RANKS", "MACHINES"))
        raise InputError(f"key {name!r}", where=str(path), allowed=allowed)
    return found


def _law(raw: object, where: str) -> CollectiveLaw:
    names = tuple(field.name for field in fields(CollectiveLaw))
    found = _exactly(raw, names, where)
    switches = found["switches"]
    if not isinstance(switches, list):
        raise InputError("is not a list", where=f"{where}, switches")
    scalars = {name: _number(found[name], f"{where}, {name}") for name in names if name != "switches"}
    return CollectiveLaw(**scalars, switches=tuple(_switch(each, f"{where}, switches") for each in switches))


def _switch(raw: object, where: str) -> ProtocolSwitch:
    names = tuple(field.name for field in fields(ProtocolSwitch))
    found = _exactly(raw, names, where)
    return ProtocolSwitch(**{name: _number(found[name], f"{where}, {name}", name == "growth") for name in names})


def _items(raw: Mapping[str, object], key: str, path: Path) -> list[tuple[str, object]]:
    found = raw[key]
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise InputError("is not a mapping of names to laws", where=f"{path}, key {key!r}")
    return list(found.items())


def _exactly(raw: object, names: tuple[str, ...], where: str) -> dict[str, object]:
    if not isinstance(raw, dict) or set(raw) != set(names):
        odd = sorted(map(str, set(raw) ^ set(names))) if isinstance(raw, dict) else [repr(raw)]
        raise InputError(f"missing or unknown: {', '.join(odd)}", where=where, allowed=", ".join(names))
    return raw


def _number(raw: object, where: str, may_be_negative: bool = False) -> float:
    good = isinstance(raw, (int, float)) and not isinstance(raw, bool) and math.isfinite(raw)
    if not good or (raw < 0 and not may_be_negative):  # type: ignore[operator]
        raise InputError(f"value {raw!r}", where=where, allowed="a number" if may_be_negative else "a number from 0 up")
    return float(raw)  # type: ignore[arg-type]
