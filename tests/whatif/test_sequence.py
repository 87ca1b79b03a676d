"""Another length of sequences: the edited graph is the graph of the program with it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.generate.capturing import capture
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.whatif import ScaleBatch, ScaleSequence, apply
from gnnperf.whatif.sequence_shapes import find_sequence
from research.recording.workloads.transformer import Parallel, Transformer
from tests.whatif.programs import Size, attention_layer, layer
from tests.whatif.test_batch import assert_same

(EMBEDDING, ADD, NORM, QKV, SCORES, SOFTMAX, CONTEXT, ATTENTION, OUT, GRADIENT_W, SUM, UPDATE, SEND, ARRIVE, EXIT,
 TRANSFER) = range(16)  # fmt: skip
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
    expected = {
        EMBEDDING: "[[101,15],[2,12],[],[],[]]", ADD: "[[2,12,15],[12,15],[]]", QKV: "[[24,15],[101,15],[101]]",
        SCORES: "[[6,12,5],[6,5,12]]", SOFTMAX: "[[2,3,12,12],[],[]]", CONTEXT: "[[6,12,12],[6,12,5]]",
        GRADIENT_W: "[[101,24],[24,15]]", SEND: f"[[[{101 * 15 + 12 * 15 + 101}]]]",
    }  # fmt: skip
    assert nodes["input_dims"][list(expected)].to_dict() == expected
    assert nodes["input_dims"][UPDATE].startswith("[[[101,15],[12,15],[101]],")
    assert nodes["flops"][SCORES] == 4 * graph.nodes["flops"][SCORES] == 2.0 * 6 * 12 * 12 * 5
    assert nodes["flops"][QKV] == 2 * graph.nodes["flops"][QKV]
    assert nodes["flops"][ATTENTION] == pytest.approx(2.0 * 6 * 78 * 10)  # causal: 78 pairs of 144, two products
    assert nodes["message_bytes"][TRANSFER] == graph.nodes["message_bytes"][TRANSFER] + 4.0 * 6 * 15
    assert nodes["latency_us"][[SCORES, TRANSFER]].isna().all()
    assert "sequences of 6 become 12" in edited.result[0]


def test_steps_of_several_lengths_take_the_median_one(tmp_path: Path) -> None:
    file = tmp_path / "lengths.csv"
    file.write_text("length\n18\n12\n6\n12\n")
    edit = ScaleSequence(lengths=str(file))
    assert [one.to for one in edit.of_steps()] == [6, 12, 12, 18]
    assert "sequences of 6 become 12" in edit(attention_layer(SIZE)).result[0]
    file.write_text("\n".join(map(str, range(1, 1001))))
    many = [one.to for one in edit.of_steps()]
    assert (len(many), many[0], many[32], many[-1]) == (64, 8, 508, 993)
    with pytest.raises(InputError, match="one of factor, to, lengths"):
        ScaleSequence(to=12, lengths=str(file))
    with pytest.raises(InputError, match="no such file"):
        ScaleSequence(lengths="none.csv")(attention_layer(SIZE))


@settings(max_examples=10)
@given(sizes, st.sampled_from([2.0, 3.0, 0.5]))
def test_edited_is_what_the_program_would_be_and_back(size: Size, factor: float) -> None:
    assume(round(size.s * factor) != size.h)  # a length equal to the number of heads is ambiguous on the way back
    graph = attention_layer(size)
    edited = ScaleSequence(factor=factor)(graph).graph
    assert_same(edited, attention_layer(replace(size, s=round(size.s * factor))))
    assert_same(ScaleSequence(to=size.s)(edited).graph, graph)


@settings(max_examples=5)
@given(sizes)
def test_batch_and_sequence_compose(size: Size) -> None:
    edited = apply(attention_layer(size), [ScaleBatch(2.0), ScaleSequence(factor=2.0)]).graph
    dims = edited.nodes["input_dims"]
    assert dims[QKV] == f"[[{4 * size.b * size.s},{size.width}],[{size.v},{size.width}],[{size.v}]]"
    assert dims[SOFTMAX] == f"[[{2 * size.b},{size.h},{2 * size.s},{2 * size.s}],[],[]]"


@settings(max_examples=10)
@given(sizes, st.integers(min_value=2, max_value=40))
def test_longer_is_never_less_work(size: Size, length: int) -> None:
    graph = attention_layer(size)
    edited = ScaleSequence(to=length)(graph).graph
    change = np.nan_to_num(edited.nodes["flops"].to_numpy() - graph.nodes["flops"].to_numpy())
    assert (change >= -1e-6).all() if length >= size.s else (change <= 1e-6).all()


def test_a_head_as_long_as_the_sequence_is_stated() -> None:
    """d = s = 6: q, k, v and scores are alike; the FLOPs of their products grow as they do."""
    edited = ScaleSequence(factor=2.0)(attention_layer(Size(b=2, s=6, h=3, d=6, v=101)))
    assert any("which dimension is the sequence" in sentence and "bmm" in sentence for sentence in edited.unknown)
    assert edited.graph.nodes["input_dims"][ATTENTION].startswith("[[2,3,12,6],[2,3,12,6],[2,3,12,6]")


def test_a_width_as_large_as_the_tokens_is_stated_and_products_still_fit() -> None:
    """12 tokens, width 12: data or weight?"""
    graph = attention_layer(Size(b=2, s=6, h=3, d=4, v=101))
    edited = ScaleSequence(factor=2.0)(graph)
    assert any("which dimension is the sequence" in sentence for sentence in edited.unknown)
    assert edited.graph.nodes["flops"][GRADIENT_W] == 2 * graph.nodes["flops"][GRADIENT_W]


def test_the_same_length_changes_nothing() -> None:
    assert not ScaleSequence(to=6)(attention_layer(SIZE)).touched.any()


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
    for settings_ in ({}, {"factor": 2.0, "to": 8}):
        with pytest.raises(InputError, match="one of factor, to, lengths"):
            ScaleSequence(**settings_)  # type: ignore[arg-type]


PROGRAMS = (
    Transformer(layers=2, width=192, sequence=64, batch=2, parallel=Parallel.PP, accumulation=2),  # length = a head
    Transformer(layers=1, width=128, sequence=48, batch=2, causal=False, parallel=Parallel.TP, checkpointing=True),
)


def captured(program: Transformer) -> ExecutionGraph:
    return capture(lambda: program.build().step, 2, name=program.name, steps=1)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_all_shapes_costs_and_messages_of_captured_programs(program: Transformer) -> None:
    edited = ScaleSequence(factor=2.0)(captured(program)).graph
    expected = captured(replace(program, sequence=2 * program.sequence))
    names = [graph.nodes["op_name"].astype(object).fillna("").tolist() for graph in (edited, expected)]
    assert names[0] == names[1]
    assert_same(edited, expected, rtol=1e-9)
