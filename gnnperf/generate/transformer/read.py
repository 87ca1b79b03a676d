"""A plan from a mapping, as conf/plan/NAME.yaml holds it: every key and value checked."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnperf.generate.transformer.block import Block, Experts
from gnnperf.generate.transformer.items import Offload
from gnnperf.generate.transformer.lengths import read_lengths
from gnnperf.generate.transformer.plan import Lengths, Parallelism, Schedule, Sharding, Transformer, TransformerPlan
from gnnperf.hardware import keys_in, section, value_as

OPTIONAL = {"block": Block, "parallelism": Parallelism, "sharding": Sharding, "offload": Offload}
SECTIONS = ("name", "model", "schedule", "experts", "lengths", *OPTIONAL, "source")


def plan_from(raw: Mapping[str, Any], where: str) -> TransformerPlan:
    """The plan of a mapping of sections; `source` is where its numbers come from, not used. Errors: see read_plan."""
    keys_in(raw, SECTIONS, where)
    experts = raw.get("experts")
    return TransformerPlan(
        str(raw.get("name", where)),
        section(Transformer, raw.get("model"), f"{where}.model"),
        schedule=section(Schedule, raw.get("schedule"), f"{where}.schedule"),
        experts=None if experts is None else section(Experts, experts, f"{where}.experts"),
        lengths=_lengths(raw.get("lengths"), f"{where}.lengths"),
        **{name: section(kind, raw.get(name, {}), f"{where}.{name}") for name, kind in OPTIONAL.items()},
    )


def _lengths(raw: object, where: str) -> Lengths | None:
    """`file` names a CSV file that holds the values."""
    if isinstance(raw, Mapping) and "file" in raw:
        values = list(read_lengths(Path(value_as(raw["file"], str, f"{where}.file"))))
        raw = {**{key: value for key, value in raw.items() if key != "file"}, "values": values}
    return None if raw is None else section(Lengths, raw, where)
