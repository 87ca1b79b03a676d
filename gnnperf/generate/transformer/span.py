"""Groups of a plan that do not lie on machines evenly: equal ranks then have unequal links."""

from __future__ import annotations

from gnnperf.generate.transformer.items import Group
from gnnperf.generate.transformer.plan import TransformerPlan


def misplaced_groups(plan: TransformerPlan, ranks_per_node: int) -> tuple[str, ...]:
    """Sentences about groups of which some span more machines than others.

    Args:
        plan: its ranks fill machines in order (gnnperf.generate.transformer.memory).
        ranks_per_node: of a machine.
    """
    ways = plan.parallelism
    extents = {  # group -> ranks in it, ranks from one such block of groups to the next
        Group.TENSOR: (ways.tensor, ways.tensor),
        Group.DATA: (ways.data, ways.tensor * ways.data),
        Group.EXPERT: (ways.expert, ways.tensor * ways.expert),
        Group.EXPERT_DATA: (ways.expert_data if ways.expert > 1 else 1, ways.tensor * ways.data),
    }
    return tuple(
        f"Groups of kind {group!s} lie on machines of {ranks_per_node} ranks in unequal ways; all are answered as the "
        "first one."
        for group, (size, block) in extents.items()
        if size > 1 and ways.world_size > block and ranks_per_node % block and block % ranks_per_node
    )
