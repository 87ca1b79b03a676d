"""Another length of sequences: the edited graph is the graph of the program with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.whatif import ScaleBatch, apply
from gnnperf.whatif.sequence import ScaleSequence
from gnnperf.whatif.sequence_shapes import find_sequence
from tests.whatif.attention_layer import (
    ADD,
    CONTEXT,
    EMBEDDING,
    FUSED,
    GRADIENT_W,
    QKV,
    SCORES,
    SEND,
    SOFTMAX,
    TRANSFER,
    UPDATE,
    Size,
    attention_layer,
)
from tests.whatif.layers import layer
from tests.whatif.test_batch import assert_same

SIZE = Size(b=2, s=6, h=3, d=5, v=101)
sizes = st.builds(Size, b=st.sampled_from([2, 3]), s=st.sampled_from([8, 10]), h=st.sampled_from([5, 7]),
                  d=st.sampled_from([11, 13]), v=st.sampled_from([101, 103]))  # fmt: skip


def test_by_hand() -> None:
    """Two sequences of 6 become 12: 12 tokens 24, scores four times as many, six rows more of positions, of 15."""
    graph = attention_layer(SIZE)
    result = find_sequence(graph, None)
    assert (result.length, result.samples, result.tokens, result.positions) == (6, {2}, {12}, {(6, 15)})
    edited = ScaleSequence(factor=2.0)(graph)
    nodes = edited.graph.nodes
    assert nodes["input_dims"][EMBEDDING] == "[[101,15],[2,12],[],[],[]]"
    assert nodes["input_dims"][ADD] == "[[2,12,15],[12,15],[]]"
    assert nodes["input_dims"][QKV] == "[[24,15],[101,15],[101]]"
    assert nodes["input_dims"][SCORES] == "[[6,12,5],[6,5,12]]"
    assert nodes["input_dims"][SOFTMAX] == "[[2,3,12,12],[],[]]"
    assert nodes["input_dims"][CONTEXT] == "[[6,12,12],[6,12,5]]"
    assert nodes["input_dims"][GRADIENT_W] == "[[101,24],[24,15]]"
    assert nodes["input_dims"][UPDATE].startswith("[[[101,15],[12,15],[101]],")
    assert nodes["flops"][SCORES] == 4 * graph.nodes["flops"][SCORES] == 2.0 * 6 * 12 * 12 * 5
    assert nodes["flops"][QKV] == 2 * graph.nodes["flops"][QKV]
    assert nodes["message_bytes"][TRANSFER] == graph.nodes["message_bytes"][TRANSFER] + 4.0 * 6 * 15
    assert nodes["input_dims"][SEND] == f"[[[{101 * 15 + 12 * 15 + 101}]]]"
    assert nodes["latency_us"][[SCORES, TRANSFER]].isna().all()
    assert "sequences of 6 become 12" in edited.result[0]


def test_causal_attention_sees_half_of_the_square_and_its_diagonal() -> None:
    """6 heads of 12 places: 78 pairs of 144, two products of 5 columns."""
    result = ScaleSequence(to=12)(attention_layer(SIZE)).graph.nodes
    assert result["flops"][FUSED] == pytest.approx(2.0 * 6 * 78 * 10)


@given(sizes, st.sampled_from([2.0, 3.0, 0.5]))
def test_edited_is_what_the_program_would_be(size: Size, factor: float) -> None:
    edited = ScaleSequence(factor=factor)(attention_layer(size)).graph
    assert_same(edited, attention_layer(replace(size, s=round(size.s * factor))))


@given(sizes)
def test_there_and_back(size: Size) -> None:
    graph = attention_layer(size)
    assert_same(apply(graph, [ScaleSequence(factor=2.0), ScaleSequence(factor=0.5)]).graph, graph)


@given(sizes)
def test_batch_and_sequence_compose(size: Size) -> None:
    graph = attention_layer(size)
    edited = apply(graph, [ScaleBatch(2.0), ScaleSequence(factor=2.0)]).graph
    assert (
        edited.nodes["input_dims"][QKV] == f"[[{4 * size.b * size.s},{size.width}],[{size.v},{size.width}],[{size.v}]]"
    )
    assert edited.nodes["input_dims"][SOFTMAX] == f"[[{2 * size.b},{size.h},{2 * size.s},{2 * size.s}],[],[]]"


def test_a_head_as_long_as_the_sequence_is_stated() -> None:
    """d = s = 6: q, k, v and scores are alike; the FLOPs of their products grow as they do."""
    graph = attention_layer(Size(b=2, s=6, h=3, d=6, v=101))
    edited = ScaleSequence(factor=2.0)(graph)
    assert any("which dimension is the sequence" in sentence and "bmm" in sentence for sentence in edited.unknown)
    fused = edited.graph.nodes["input_dims"][FUSED]
    assert fused.startswith("[[2,3,12,6],[2,3,12,6],[2,3,12,6]")


def test_a_width_as_large_as_the_tokens_is_stated_and_products_still_fit() -> None:
    """12 tokens, width 12: data or weight?"""
    graph = attention_layer(Size(b=2, s=6, h=3, d=4, v=101))
    edited = ScaleSequence(factor=2.0)(graph)
    assert any("which dimension is the sequence" in sentence for sentence in edited.unknown)
    assert edited.graph.nodes["flops"][GRADIENT_W] == 2 * graph.nodes["flops"][GRADIENT_W]


def test_the_length_that_is_there_changes_nothing() -> None:
    edited = ScaleSequence(to=6)(attention_layer(SIZE))
    assert not edited.touched.any()


def several() -> ExecutionGraph:
    """Attention of 6 places, and of 4 next to it."""
    graph = attention_layer(SIZE)
    dims = graph.nodes["input_dims"].astype(object)
    dims[SOFTMAX] = "[[2,3,4,4],[],[]]"
    return replace(graph, nodes=graph.nodes.assign(input_dims=dims.astype("category")))


def test_refusals() -> None:
    with pytest.raises(InputError, match=r"lengths? 4, 6.*name it"):
        ScaleSequence(factor=2.0)(several())
    assert ScaleSequence(factor=2.0, of=6)(several()).graph.nodes["input_dims"][QKV].startswith("[[24,15]")
    with pytest.raises(InputError, match="no attention whose shapes tell"):
        ScaleSequence(factor=2.0)(layer(2, 3, 5, 7))
    with pytest.raises(InputError, match=r"6 x 0.4 is no whole length"):
        ScaleSequence(factor=0.4)(attention_layer(SIZE))
    with pytest.raises(InputError, match="one of the two"):
        ScaleSequence()
    with pytest.raises(InputError, match="one of the two"):
        ScaleSequence(factor=2.0, to=8)


@given(sizes, st.integers(min_value=2, max_value=40))
def test_longer_is_never_less_work(size: Size, length: int) -> None:
    graph = attention_layer(size)
    edited = ScaleSequence(to=length)(graph).graph
    change = np.nan_to_num(edited.nodes["flops"].to_numpy() - graph.nodes["flops"].to_numpy())
    assert (change >= -1e-6).all() if length >= size.s else (change <= 1e-6).all()
