"""hardware=PATH.yaml, cluster=PATH.yaml and plan=PATH.yaml: a file of the user's where Hydra takes names only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gnnperf.hardware.named import CLUSTER_GROUP, DEVICE_GROUP, PLAN_GROUP, is_path
from gnnperf.hardware.yaml_spec import read_yaml

OWN = "own_"  # no shipped file is called so
GROUPS = (DEVICE_GROUP, CLUSTER_GROUP, PLAN_GROUP)


def with_names(overrides: Sequence[str], register: Callable[[str, dict[str, object], str], None]) -> list[str]:
    """The overrides with a name in place of each path; `register(name, content, group)` makes the name known.

    Raises:
        InputError: a file that cannot be read or is not a mapping.
    """
    return [_with_name(override, register) for override in overrides]


def _with_name(override: str, register: Callable[[str, dict[str, object], str], None]) -> str:
    group, _, value = override.partition("=")
    if group not in GROUPS:
        return override
    choices = value.split(",")  # a sweep lists several
    for i, choice in enumerate(choices):
        if is_path(choice):
            choices[i] = OWN + Path(choice).stem
            register(choices[i], read_yaml(Path(choice)), group)
    return f"{group}={','.join(choices)}"
