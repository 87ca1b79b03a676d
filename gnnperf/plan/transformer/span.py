"""Groups that leave their machine though they would fit into one: collectives are priced by group size alone."""

from __future__ import annotations

from gnnperf.plan.transformer.items import Group
from gnnperf.plan.transformer.plan import TransformerPlan


def misplaced_groups(plan: TransformerPlan, ranks_per_node: int) -> tuple[str, ...]:
    """Sentences about groups whose transfers are answered as if they stayed inside one machine.

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
    return tuple(
        f"Groups of kind {group!s} ({size} ranks) reach over machines, but are answered as if inside one."
        for group, (size, extent) in extents.items()
        if 1 < size <= ranks_per_node and extent >= ranks_per_node
    )
