from __future__ import annotations

import numpy as np
import pandas as pd
from toys import two_rank_graph

from gnnperf.gnn.data.floors import NOTHING
from gnnperf.gnn.data.vocabulary import FIELDS, UNKNOWN, fit_vocabulary, joined

NODES = two_rank_graph().nodes
OP = FIELDS.index("op_name")


def of(node_type: str) -> pd.DataFrame:
    return NODES[NODES["node_type"] == node_type]


def test_words_by_type_and_field() -> None:
    words = fit_vocabulary([NODES]).words
    assert words["compute"]["op_name"] == ("aten::mm",)
    assert words["host"]["op_name"] == ("aten::mm", "cudaDeviceSynchronize")
    assert words["host"]["segment"] == ("T1", "T2", "T3", "T4")
    assert words["host"]["collective"] == (NOTHING,)
    assert words["host"]["lane"] == ("main",)
    assert words["compute"]["lane"] == ("s0",)
    assert words["memory"]["op_name"] == ()


def test_codes_start_at_one_and_unknown_words_get_zero() -> None:
    vocabulary = fit_vocabulary([NODES])
    assert vocabulary.encode("host", of("host"))[:4, OP].tolist() == [1, 1, 1, 2]
    renamed = of("compute").assign(op_name="aten::new", dtype="float8")
    codes = vocabulary.encode("compute", renamed)
    assert (codes[:, OP] == UNKNOWN).all()
    assert (codes[:, FIELDS.index("dtype")] == UNKNOWN).all()
    assert (codes[:, FIELDS.index("family")] > 0).all()
    assert vocabulary.num_codes("host", "op_name") == 3


def test_the_order_of_runs_is_irrelevant_and_no_rows_are_fine() -> None:
    new = NODES.assign(op_name="aten::relu")
    assert fit_vocabulary([NODES, new]) == fit_vocabulary([new, NODES])
    assert fit_vocabulary([NODES]).encode("memory", NODES.iloc[:0]).shape == (0, len(FIELDS))


def test_words_of_nodes_without_a_label_stay_unknown() -> None:
    silent = NODES.assign(op_name="aten::silent", latency_us=np.nan)
    assert fit_vocabulary([NODES, silent]) == fit_vocabulary([NODES])


def test_streams_and_threads_by_role() -> None:
    nodes = of("compute").iloc[[0, 0, 0, 0]].assign(stream=[-1, 1, 9, -1], thread=[-1, -1, -1, 4])
    assert fit_vocabulary([nodes]).words["compute"]["lane"] == ("", "s1", "s3", "thread")


def test_new_words_come_behind_those_that_are_known() -> None:
    earlier = fit_vocabulary([NODES])
    both = joined(earlier, fit_vocabulary([NODES.assign(op_name="a::first")]))
    assert both.words["compute"]["op_name"] == ("aten::mm", "a::first")
    assert both.words["compute"]["dtype"] == earlier.words["compute"]["dtype"]
    known = both.encode("compute", of("compute"))
    assert (known == earlier.encode("compute", of("compute"))).all()
