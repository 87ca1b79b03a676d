"""Tokens of columns, codes of the training runs, floors by node type."""

import numpy as np
import pandas as pd
import pytest
from toys import two_rank_graph

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.floors import NOTHING, base_us, fit_floors, of_each, texts_of, words_of
from gnnperf.gnn.data.vocabulary import FIELDS, UNKNOWN, fit_vocabulary, joined, united

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
    silent = NODES.assign(op_name="aten::silent", latency_us=np.nan)  # words of nodes without a label stay unknown
    assert fit_vocabulary([NODES, silent]).words == words


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


WORDS = ["b", None, "a", "b"]


@pytest.mark.parametrize("dtype", ["object", "category", "str"])
def test_words_and_which_one_a_row_has(dtype: str) -> None:
    column = pd.Series(WORDS, dtype=dtype)
    words, place = words_of(column)
    assert sorted(words) == [NOTHING, "a", "b"]
    assert words[place].tolist() == texts_of(column).tolist() == ["b", NOTHING, "a", "b"]


def test_a_value_is_requested_once_per_word() -> None:
    requested: list[str] = []

    def value(word: str) -> float:
        requested.append(word)
        return float(len(word))

    assert of_each(pd.Series(WORDS, dtype="category"), value).tolist() == [1.0, 0.0, 1.0, 1.0]
    assert sorted(requested) == [NOTHING, "a", "b"]


def test_no_rows_are_fine() -> None:
    words, place = words_of(pd.Series([], dtype=object))
    assert words.tolist() == [NOTHING]
    assert place.shape == (0,)
    assert np.array_equal(texts_of(pd.Series([], dtype=object)), np.empty(0, dtype=object))


def test_medians_by_segment_then_type_then_all() -> None:
    floors = fit_floors([NODES])
    assert floors.by_segment_us["compute/"] == 110.0  # of 100 and 120
    assert floors.by_segment_us["comm/arrive"] == 0.0
    assert floors.by_type_us["host"] == 7.5  # 10 5 10 5, twice
    other = NODES.iloc[[0, 3]].assign(segment=["T5", None], node_type=["host", "memory"])
    assert floors.floor_us(other).tolist() == [7.5, floors.overall_us]


def test_the_base_is_the_analytical_prediction_where_there_is_one() -> None:
    analytic = np.full(len(NODES), np.nan)
    analytic[3], analytic[4], analytic[0] = 80.0, 0.0, 0.0
    base = base_us(NODES, analytic, fit_floors([NODES]))
    assert base[[3, 10, 4, 0]].tolist() == [80.0, 110.0, 0.0, 10.0]  # a prediction of 0 is no base for a host node


def test_no_label_at_all() -> None:
    with pytest.raises(InputError, match="no node of the training runs has a measured latency"):
        fit_floors([NODES.assign(latency_us=np.nan)])


def test_the_vocabulary_of_tables_is_that_of_each_united() -> None:
    tables = [NODES, NODES.assign(op_name="a::first"), NODES.iloc[:1]]
    assert united([fit_vocabulary([one]) for one in tables]) == fit_vocabulary(tables)
    assert fit_vocabulary(tables) != fit_vocabulary(tables[:1])
