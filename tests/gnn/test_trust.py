from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gnnperf.core import NodeType
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.trust import LONG_US, UNKNOWN_OP, Trust, fit_trust

TRUST = Trust(("v100",), {"one": ("a", "b"), "two": ("c", "d")})


def weights(ops: list[str], base_us: list[float], node_type: NodeType = NodeType.COMPUTE) -> list[float]:
    nodes = pd.DataFrame({"op_name": ops, "node_type": str(node_type)})
    known = nodes["op_name"].isin(["a", "b", "c", "d"]).to_numpy()
    return TRUST.of(nodes, "v100", known, np.array(base_us))[0].tolist()


def test_only_long_kernels_of_another_program_fall_back() -> None:
    short, long = LONG_US / 2, LONG_US
    assert weights(["a", "b"], [short, long]) == [1.0, 1.0]
    assert weights(["a", "c"], [short, long]) == [1.0, 0.0]  # no program has both
    assert weights(["a", "c"], [long, long], NodeType.HOST) == [1.0, 1.0]


def test_an_op_that_training_lacks_makes_no_program_another_one() -> None:
    assert weights(["a", "new"], [LONG_US, LONG_US]) == [1.0, UNKNOWN_OP]
    assert weights(["new", "new"], [1.0, LONG_US]) == [UNKNOWN_OP, 0.0]  # nothing states which program it is


def test_of_a_device_that_training_lacks_nothing_was_learned() -> None:
    nodes = pd.DataFrame({"op_name": ["a", None], "node_type": ["compute", "host"]})
    weight, reason = TRUST.of(nodes, "a100", np.ones(2, dtype=bool), np.ones(2))
    assert weight.tolist() == [0.0, 0.0]
    assert set(reason) == {"device not in training"}


@pytest.mark.parametrize("workload", ["", "mine"])
def test_programs_are_those_of_cards_else_of_runs(data: PreparedData, workload: str) -> None:
    (step, *_) = data.steps["train"]
    trust = fit_trust([replace(step, workload=workload)])
    assert trust.devices == (step.cluster.device.name,)
    assert trust.programs == {workload or step.run: ("aten::mm",)}
