"""Where the shipped YAML lies: `conf/` of a checkout, else `conf/` inside the installed package."""

from __future__ import annotations

from pathlib import Path

import gnnperf
from gnnperf.core import InputError

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
