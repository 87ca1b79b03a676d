"""The plan of programs that serve nothing but judging."""

from __future__ import annotations

from collections import Counter

from research.recording.cpu_gloo import cpu_gloo
from research.recording.cpu_unseen import cpu_unseen

KINDS = ("unet", "graph_network", "recurrent", "autoencoder", "mixer", "two_towers", "temporal", "point_cloud")


def test_its_programs_are_in_no_other_plan() -> None:
    plan, other = cpu_unseen(), cpu_gloo()
    assert len({run.name for run in plan.runs}) == len(plan.runs) == 72
    kinds = Counter(run.workload.kind for run in plan.runs)
    assert kinds == dict.fromkeys(KINDS, 9)
    assert not set(kinds) & {run.workload.kind for run in other.runs}


def test_its_own_split_trains_on_nothing() -> None:
    split = cpu_unseen().splits["unseen"]
    assert not split["train"] and not split["val"]
    assert set(split["test"]) == {run.name for run in cpu_unseen().runs}


def test_links_and_ranks() -> None:
    runs = Counter((run.world_size, run.link.name) for run in cpu_unseen().runs)
    assert runs == {(2, "lo"): 48, (2, "1g"): 8, (2, "5g"): 8, (1, "lo"): 8}
