"""Short names of workloads: what a field is called in them, and its value where it is not the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from research.recording.workloads.workload import Workload


def name_of(workload: Workload, always: Mapping[str, str], otherwise: Mapping[str, str]) -> str:
    """kind_<always>_<those of otherwise that differ from their default>: dlrm_t8_r100k_d32_b256_acc2.

    Args:
        workload: a dataclass instance; every field must be in one of the two.
        always: letters by field, in the order of the name.
        otherwise: the same, for fields that are named only where they are not the default.
    """
    defaults = {field.name: field.default for field in fields(workload)}
    differing = [field for field in otherwise if getattr(workload, field) != defaults[field]]
    letters = {**always, **otherwise}
    return "_".join([workload.kind, *(letters[field] + _short(getattr(workload, field)) for field in
                                      [*always, *differing])])  # fmt: skip


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return "-".join(map(_short, value))
    if isinstance(value, bool):
        return "" if value else "0"
    if isinstance(value, int):
        return f"{value // 1000}k" if value >= 1000 and value % 1000 == 0 else str(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
