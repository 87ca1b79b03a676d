"""Sequences of another length against the captured graph of the same program with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnnperf.generate.capturing import capture
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.whatif import ScaleSequence
from research.recording.workloads.transformer import Parallel, Transformer

PROGRAMS = (
    Transformer(layers=1, width=128, sequence=64, batch=4),  # a head is as long as the sequence
    Transformer(layers=1, width=192, sequence=48, batch=2, causal=False),
    Transformer(layers=2, width=128, sequence=32, batch=2, parallel=Parallel.PP, accumulation=2),
    Transformer(layers=1, width=128, sequence=48, batch=2, parallel=Parallel.TP, checkpointing=True),
)


def captured(program: Transformer) -> ExecutionGraph:
    graph = capture(lambda: program.build().step, 2, name=program.name)
    return graph.step(graph.steps[-1].step)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_all_shapes_costs_and_messages(program: Transformer) -> None:
    edited = ScaleSequence(factor=2.0)(captured(program)).graph.nodes
    expected = captured(replace(program, sequence=2 * program.sequence)).nodes
    assert (
        edited["op_name"].astype(object).fillna("").tolist() == expected["op_name"].astype(object).fillna("").tolist()
    )
    dims = [nodes["input_dims"].astype(object).fillna("").tolist() for nodes in (edited, expected)]
    assert dims[0] == dims[1]
    for column in ("flops", "bytes", "message_bytes"):
        np.testing.assert_allclose(edited[column], expected[column], rtol=1e-9, err_msg=column)
