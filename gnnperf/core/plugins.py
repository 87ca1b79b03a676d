"""Optional parts of other distributions, named by entry points: the product never imports the research code.

A distribution offers an object under a group and a name (pyproject.toml, `[project.entry-points."gnnperf.recipes"]`).
Only installed distributions count, so no input file can name code.
"""

from typing import Any

from gnnperf.core.errors import InputError

RESEARCH = "install the research code of a source checkout: pip install --editable ./research"


def plugin_names(group: str) -> tuple[str, ...]:
    """Sorted names that installed distributions offer in `group`."""
    from importlib.metadata import entry_points  # takes 30 ms to load

    return tuple(sorted({entry.name for entry in entry_points(group=group)}))


def load_plugin(group: str, name: str, where: str) -> Any:
    """The object that an installed distribution offers under a name of a group; `where` is the option that names it."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=group, name=name):
        return entry.load()
    raise InputError(
        f"{name!r} is not installed", where=where, allowed=", ".join(plugin_names(group)) or "nothing", remedy=RESEARCH
    )
