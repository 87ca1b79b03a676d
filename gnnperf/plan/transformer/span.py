"""Groups that do not lie in machines as their price takes it: collectives are priced by group size alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gnnperf.plan.transformer.items import Group
from gnnperf.plan.transformer.plan import TransformerPlan


def misplaced_groups(plan: TransformerPlan, ranks_per_node: int) -> tuple[str, ...]:
    """Sentences about groups whose transfers are answered as if they lay in one machine, or filled several.

    Args:
        plan: its ranks fill machines in order (gnnperf.plan.transformer.roles).
        ranks_per_node: of a machine.
    """
    ways = plan.parallelism
    stage = ways.tensor * ways.data  # distance between neighbors of a pipeline
    extents = {  # group -> ranks in it, distance of its first and last rank
        Group.TENSOR: (ways.tensor, ways.tensor - 1),
        Group.DATA: (ways.data, ways.tensor * (ways.data - 1)),
        Group.EXPERT: (ways.expert, ways.tensor * (ways.expert - 1)),
        Group.EXPERT_DATA: (
            ways.expert_data if ways.expert > 1 else 1,
            ways.tensor * ways.expert * (ways.expert_data - 1),
        ),
        Group.NEXT: (min(ways.pipeline, 2), stage if ways.pipeline > 1 else 0),
    }
    return (*_outside(extents, ranks_per_node), *_thin(extents, ranks_per_node))


def _outside(extents: Mapping[Group, tuple[int, int]], ranks_per_node: int) -> Iterator[str]:
    """Groups that would fit into one machine, and do not lie in one."""
    for group, (size, extent) in extents.items():
        if 1 < size <= ranks_per_node and extent >= ranks_per_node:
            yield f"Groups of kind {group!s} ({size} ranks) reach over machines, but are answered as if inside one."


def _thin(extents: Mapping[Group, tuple[int, int]], ranks_per_node: int) -> Iterator[str]:
    """Larger groups whose ranks are not neighbors: other groups use the adapters of the ranks between them."""
    for group, (size, extent) in extents.items():
        if size > ranks_per_node and extent > size - 1:
            each = max(ranks_per_node * (size - 1) // extent, 1)
            which = f"{group!s} ({size} ranks, {each} on a machine)"
            yield f"Groups of kind {which} are answered as if they filled their machines."
