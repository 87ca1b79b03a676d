"""Which calls are repeated is read off the order of ops."""

from __future__ import annotations

import numpy as np
import pytest
from toys import make_graph

from gnnperf.core.errors import InputError
from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.whatif import OpSelector
from research.evaluation.repeats import RepeatOp, RunOnce, repeated_calls
from research.evaluation.step_times import step_times_us
from tests.whatif.loops import loop

MM = OpSelector("mm")


def program(*ops: str, ranks: int = 1) -> ExecutionGraph:
    """One step of these ops, 1 us between them, 10 us each; `mm4` is mm with other shapes."""
    rows: list[dict[str, object]] = []
    edges: list[tuple[int, int, str]] = []
    for rank in range(ranks):
        begin = len(rows)
        for op in ops:
            at: dict[str, object] = {"rank": rank, "thread": 0, "op_name": op.rstrip("4")}
            rows.append({**at, "node_type": NodeType.HOST, "segment": Segment.T1, "latency_us": 1.0})
            rows.append({**at, "node_type": NodeType.COMPUTE, "input_dims": f"[[{op[2:]}]]", "latency_us": 10.0})
        edges += [(n, n + 1, Relation.FOLLOWS) for n in range(begin, len(rows) - 1)]
    label = StepLabel(0, "ProfilerStep#0", None, 0.0, (0.0,) * ranks, (0.0,) * ranks)
    return make_graph(rows, edges, ranks=tuple(range(ranks)), steps=(label,))


@pytest.mark.parametrize(
    ("once", "repeated", "times", "here", "there"),
    [
        (("mm", "relu", "mm"), ("mm", "relu", "mm", "mm", "mm"), 3, (1,), (1, 2, 3)),
        (("mm", "mm4"), ("mm", "mm4", "mm4"), 2, (1,), (1, 2)),
        (("mm", "mm", "relu"), ("mm", "mm", "mm", "mm", "relu"), 2, (0, 1), (0, 1, 2, 3)),
        (("mm", "relu", "mm"), ("mm", "mm", "relu", "log", "mm", "mm"), 2, (0, 1), (0, 1, 2, 3)),
    ],
)
def test_by_hand(
    once: tuple[str, ...], repeated: tuple[str, ...], times: int, here: tuple[int, ...], there: tuple[int, ...]
) -> None:
    ((a, b),) = repeated_calls(program(*once), program(*repeated), MM, times)
    assert (a.ordinals, b.ordinals) == (here, there)
    assert a.ranks == b.ranks == (0,)


def test_the_edits_make_one_program_of_the_other() -> None:
    once, repeated = program("mm", "relu", "mm"), program("mm", "relu", "mm", "mm", "mm")
    ((a, b),) = repeated_calls(once, repeated, MM, 3)
    assert step_times_us(RepeatOp(a, 3)(once).graph) == pytest.approx(step_times_us(repeated))
    assert step_times_us(RunOnce(b, 3)(repeated).graph) == pytest.approx(step_times_us(once))


def test_every_rank_for_itself() -> None:
    once = program("mm", "relu", ranks=2)
    repeated = RepeatOp(OpSelector("mm", ranks=(1,)), 4)(once).graph
    result = repeated_calls(once, repeated, MM, 4)
    assert [a.ranks for a, _ in result] == [(1,)]


def test_no_time_is_read() -> None:
    """The same answer when nothing is known of times."""
    graphs = []
    for ops in (("mm", "relu"), ("mm", "mm", "relu")):
        graph = program(*ops)
        unknown = graph.nodes.assign(latency_us=np.nan, start_us=np.nan)
        graphs.append(ExecutionGraph(**{**graph.__dict__, "nodes": unknown}))
    assert repeated_calls(graphs[0], graphs[1], MM, 2)[0][0].ordinals == (0,)


@pytest.mark.parametrize(("op", "times"), [("relu", 2), ("mm", 3), ("mm", 1)])
def test_what_is_not_repeated_is_refused(op: str, times: int) -> None:
    with pytest.raises(InputError, match=f"no call of {op} that runs {times} times as often"):
        repeated_calls(program("mm", "relu"), program("mm", "mm", "relu"), OpSelector(op), times)


def test_ordinals_count_per_rank_and_step() -> None:
    result = RepeatOp(OpSelector("aten::mm", ordinals=(0,)), 2)(loop(2))
    assert result.touched.sum() == 8
    with pytest.raises(InputError, match="no call of aten::mm ordinals 1"):
        RepeatOp(OpSelector("aten::mm", ordinals=(1,)), 2)(loop(2))
