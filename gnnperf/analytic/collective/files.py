"""CollectiveConstants as YAML."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from pathlib import Path

from gnnperf.analytic.collective.constants import CollectiveConstants
from gnnperf.analytic.constants_file import constants_from, rounded
from gnnperf.core import InputError, write_text
from gnnperf.hardware import LAWS_GROUP, ClusterSpec, is_path, path_of, read_yaml, yaml_text

SEPARATOR = " | "  # "all_reduce | nvlink", "all_reduce | 8 | 1": kind and link; kind, ranks, machines
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
        "laws": {
            SEPARATOR.join(key): rounded(asdict(collective_model), DIGITS)
            for key, collective_model in constants.collective_models.items()
        },
        "groups": {
            SEPARATOR.join(map(str, key)): rounded(asdict(collective_model), DIGITS)
            for key, collective_model in constants.groups.items()
        },
    }
    write_text(path, yaml_text(raw, flow=None))


def load_collectives(path: Path) -> CollectiveConstants:
    """Read the laws of a platform.

    Raises:
        InputError: not readable, a key is missing or unknown, a number is none or out of range.
    """
    raw = read_yaml(path)
    for key, parts in (("laws", ("KIND", "LINK")), ("groups", ("KIND", "RANKS", "MACHINES"))):
        if isinstance(collective_models := raw.get(key), dict):
            raw[key] = {
                _parts(name, parts, f"{path}, {key}"): collective_model
                for name, collective_model in collective_models.items()
            }
    if "laws" in raw:
        raw["collective_models"] = raw.pop("laws")  # the key of the file
    try:
        return constants_from(raw, CollectiveConstants, str(path))
    except InputError as error:
        what, where = (text.replace("collective_models", "laws") for text in (error.what, error.where))
        raise InputError(what, where=where, allowed=error.allowed, remedy=error.remedy) from None


@cache
def shipped_collectives(name: str) -> CollectiveConstants:
    """Laws by name, from conf/analytic/collective_laws; these files do not change while a process runs.

    Raises:
        InputError: unknown name (with the closest ones).
    """
    return load_collectives(path_of(name, LAWS_GROUP))


def collective_models_of(cluster: ClusterSpec) -> CollectiveConstants | None:
    """The laws that the cluster names, on its own links; None: it names none.

    Raises:
        InputError: unknown name, or a file that cannot be read.
    """
    name = cluster.collective_models_name
    if name is None:
        return None
    return collective_models_named(name).on(cluster)


def collective_models_named(name: str) -> CollectiveConstants:
    """Laws by name, or of a .yaml file.

    Raises:
        InputError: unknown name (with the closest ones), or a file that cannot be read.
    """
    return load_collectives(Path(name)) if is_path(name) else shipped_collectives(name)


def _parts(key: object, names: tuple[str, ...], where: str) -> tuple[str | int, ...]:
    """Of a key of a file: kind and link, or kind, ranks and machines."""
    result = str(key).split(SEPARATOR)
    if len(result) != len(names):
        raise InputError(f"key {key!r}", where=where, allowed=SEPARATOR.join(names))
    return tuple(int(part) if part.isdecimal() else part for part in result)
