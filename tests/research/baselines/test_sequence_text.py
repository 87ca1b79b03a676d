from __future__ import annotations

import numpy as np
import pandas as pd
from toys import make_graph

from gnnperf.core.schema import NodeType, Relation
from research.baselines.sequence import UNKNOWN_WORD, Words, fit_words, program_order, text_of


def one_node(dims: str | None = "[[128,192],[],[[5,1],[3]]]", op: str = "aten::mm") -> pd.DataFrame:
    row = {"node_type": NodeType.COMPUTE, "thread": 0, "op_name": op, "family": "gemm", "dtype": "float32",
           "input_dims": dims}  # fmt: skip
    return make_graph([row], []).nodes


def words_of(nodes: pd.DataFrame) -> list[str]:
    """The words of the first node, in order."""
    words = fit_words([nodes, nodes])
    named = {code: word for word, code in words.code.items()}
    text = text_of(nodes, words)
    stop = text.first[1] if len(text.first) > 1 else len(text.codes)
    return [named[code] for code in text.codes[:stop]]


def test_the_words_of_an_op() -> None:
    assert words_of(one_node()) == [
        "node_type=compute", "op_name=aten::mm", "family=gemm", "phase=forward", "dtype=float32", "lane=main",
        "compute aten::mm",
        "0:128x192", "0.0:128", "0.0~7", "0.1:192", "0.1~7.6",
        "1:5x1", "1.0:5", "1.0~2.4", "1.1:1", "1.1~0",
        "2:3", "2.0:3", "2.0~1.6",
    ]  # fmt: skip


def test_an_op_without_shapes_and_one_whose_shapes_cannot_be_read() -> None:
    assert words_of(one_node(None))[-1] == "compute aten::mm"
    assert words_of(one_node("[[1"))[-1] == "unreadable"


def test_a_size_never_seen_is_known_by_its_logarithm() -> None:
    words = fit_words([one_node("[[128]]")] * 2)
    known, near = (text_of(one_node(dims), words).codes for dims in ("[[128]]", "[[129]]"))
    same = [k == n for k, n in zip(known, near, strict=True)]
    assert same == [True] * 7 + [False, False, True]  # 0:129 and 0.0:129 unknown, 0.0~7 known
    assert near[7] == near[8] == UNKNOWN_WORD


def test_a_word_of_a_single_step_is_unknown() -> None:
    words = fit_words([one_node(), one_node(op="aten::bmm"), one_node(op="aten::bmm")])
    assert "op_name=aten::bmm" in words.code
    assert "op_name=aten::mm" not in words.code
    assert sorted(words.code.values()) == list(range(1, len(words)))


def test_groups_begin_where_the_one_before_ends() -> None:
    nodes = pd.concat([one_node("[[128]]"), one_node("[[3,4]]"), one_node("[[128]]")], ignore_index=True)
    words = fit_words([nodes, nodes])
    text = text_of(nodes, words)
    assert text.first.tolist() == [0, 10, 22]
    assert len(text.codes) == 32
    np.testing.assert_array_equal(text.codes[:10], text.codes[22:])


def test_no_nodes_have_no_words() -> None:
    text = text_of(one_node().iloc[:0], Words({}))
    assert (len(text.codes), len(text.first)) == (0, 0)


def test_lanes_lie_one_after_the_other_in_the_order_of_their_edges() -> None:
    """Thread 0 runs rows 2, 0; thread 1 rows 1, 3."""
    host = {"node_type": NodeType.HOST, "segment": "T1"}
    rows = [{**host, "thread": 0}, {**host, "thread": 1}, {**host, "thread": 0}, {**host, "thread": 1},
            {"node_type": NodeType.DEVICE, "device": 0}]  # fmt: skip
    graph = make_graph(rows, [(2, 0, Relation.FOLLOWS), (1, 3, Relation.FOLLOWS)])
    assert program_order(graph, np.array([0, 1, 2, 3]), gap=8).tolist() == [1, 10, 0, 11]
    assert program_order(graph, np.array([3, 2]), gap=8).tolist() == [9, 0]
