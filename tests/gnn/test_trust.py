from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.trust import Shares, Trust, fit_trust, trust_kinds

UNSEEN = {"host T1": Shares(1.0, 0.75), "compute < 20 us": Shares(0.5, 0.25)}
TRUST = Trust(("v100",), {"one": ("a", "b"), "two": ("c", "d")}, UNSEEN)
SHORT, LONG = 10.0, 200.0  # us


def weights(ops: list[str], base_us: float = SHORT, device: str = "v100") -> list[list[float]]:
    """[num_nodes, 2] of kernels."""
    nodes = pd.DataFrame({"op_name": ops, "node_type": "compute", "segment": ""})
    known = nodes["op_name"].isin(["a", "b", "c", "d"]).to_numpy()
    result: list[list[float]] = TRUST.of(nodes, device, known, np.full(len(ops), base_us))[0].T.tolist()
    return result


def test_other_programs_get_the_shares_that_held_in_left_out_ones() -> None:
    assert weights(["a", "b"], LONG) == [[1.0, 1.0]] * 2
    assert weights(["a", "c"]) == [[0.5, 0.25]] * 2  # no program has both
    assert weights(["a", "c"], LONG) == [[0.0, 0.0]] * 2  # a kind of which nothing held


def test_an_op_that_training_lacks_is_of_another_program() -> None:
    assert weights(["a", "new"]) == [[1.0, 1.0], [0.5, 0.25]]
    assert weights(["new", "new"]) == [[0.5, 0.25]] * 2  # nothing states which program it is


def test_of_a_device_that_training_lacks_nothing_was_learned() -> None:
    assert weights(["a", "b"], device="a100") == [[0.0, 0.0]] * 2


def test_kernels_are_kinds_by_the_length_of_their_base() -> None:
    nodes = pd.DataFrame({"node_type": ["compute"] * 4 + ["host", "comm"], "segment": [""] * 4 + ["T1", "exit"]})
    kinds = trust_kinds(nodes, np.array([4.9, 5.0, 99.0, 100.0, 1.0, 1.0])).tolist()
    assert kinds == ["compute < 5 us", "compute < 20 us", "compute < 100 us", "compute", "host T1", "comm exit"]


@pytest.mark.parametrize("workload", ["", "mine"])
def test_programs_are_those_of_cards_else_of_runs(data: PreparedData, workload: str) -> None:
    (step, *_) = data.steps["train"]
    trust = fit_trust([replace(step, workload=workload)])
    assert trust.devices == (step.cluster.device.name,)
    assert trust.programs == {workload or step.run: ("aten::mm",)}
