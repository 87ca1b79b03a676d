"""Names of the catalog and the files behind them; a name that is not there is one message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from gnnperf.errors import InputError
from gnnperf.hardware.conf_dir import conf_dir

DEVICE_GROUP, CLUSTER_GROUP, LINK_GROUP, HOST_GROUP = "hardware", "cluster", "link", "host"
GROUPS = (DEVICE_GROUP, CLUSTER_GROUP, LINK_GROUP, HOST_GROUP)
SUFFIXES = (".yaml", ".yml")
MOST_NAMED, LEAST_LIKE = 4, 0.5  # names in a message; 0.5: "v100" still finds "v100_pcie"


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
    return InputError(
        f"no {group} named {name!r}" + (f"; did you mean {' or '.join(close)}?" if close else ""),
        where=str(conf_dir(group)),
        allowed=", ".join(names),
        remedy=f"add {name}.yaml there in the form of the others, or give the path of a .yaml file of your own",
    )


def closest(name: str, names: Iterable[str]) -> list[str]:
    """Names that contain `name` or are contained in it, then those spelled most like it; at most MOST_NAMED."""
    known, plain = list(names), name.lower().replace("-", "_").replace(" ", "_")
    inside = [k for k in known if plain and (plain in k or k in plain)]
    alike = get_close_matches(plain, known, n=MOST_NAMED, cutoff=LEAST_LIKE)
    return list(dict.fromkeys([*inside, *alike]))[:MOST_NAMED]
