"""Names of the catalog and the files behind them; a name that is not there is one message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from pathlib import Path

import gnnperf
from gnnperf.core import InputError

# Where the shipped YAML lies: `conf/` of a checkout, else `conf/` inside the installed package.

_PACKAGE = Path(gnnperf.__file__).resolve().parent
CANDIDATES = (_PACKAGE.parent / "conf", _PACKAGE / "conf")


def conf_dir(group: str) -> Path:
    """Folder of one configuration group, e.g. "hardware".

    Raises:
        InputError: the installation has no such folder.
    """
    for candidate in CANDIDATES:
        if (candidate / group).is_dir():
            return candidate / group
    raise InputError(
        f"configuration folder {group!r} not found",
        where=" or ".join(str(c) for c in CANDIDATES),
        remedy="reinstall gnnperf, or run it from a checkout",
    )


DEVICE_GROUP, CLUSTER_GROUP, LINK_GROUP, HOST_GROUP = "hardware", "cluster", "link", "host"
LAWS_GROUP = "analytic/collective_laws"  # not a folder of its own: Hydra would take collectives=NAME for its choice
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
    """The file behind a name of the catalog, or a path as it is.

    Raises:
        InputError: a name that the group does not have.
    """
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
        remedy=f"add {name}.yaml there in the form of the others, or give the path of a .yaml file of your own",
    )


def closest(name: str, names: Iterable[str]) -> list[str]:
    """Names spelled like `name`, as a whole or in as many first letters; best first, at most MOST_NAMED."""
    requested = name.lower().replace("-", "_").replace(" ", "_")
    ood_distance = {known: max(_alike(requested, known), _alike(requested, known[: len(requested)])) for known in names}
    near = [known for known, share in ood_distance.items() if share >= LEAST_LIKE]
    return sorted(near, key=lambda known: -ood_distance[known])[:MOST_NAMED]


def _alike(a: str, b: str) -> float:
    return SequenceMatcher(None, a, b).ratio()
