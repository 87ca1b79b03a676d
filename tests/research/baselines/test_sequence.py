from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from synthetic import prepared
from toys import make_graph

from gnnperf.core.schema import NodeType, Relation
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.data.step_time import step_time_us
from research.baselines.sequence import (
    GAP,
    NUM_NUMBERS,
    SEQUENCE_START,
    UNKNOWN_WORD,
    DirectSteps,
    OpsAsText,
    ScheduledSteps,
    SequenceNetwork,
    Words,
    batch,
    better,
    error_of,
    fit_words,
    program_order,
    sequence_of,
    step_error,
    text_of,
)
from research.baselines.step_head import base_step_us
from research.baselines.trees import work_values

SMALL = {**SEQUENCE_START, "hidden_channels": 16, "learning_rate": 0.02}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepared(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def words(data: PreparedData) -> Words:
    return fit_words([step.nodes for step in data.steps["train"]])


def network(words: Words) -> SequenceNetwork:
    """With last layers that are not zero."""
    torch.manual_seed(0)
    made = SequenceNetwork(len(words), 16).eval()
    torch.nn.init.normal_(made.node[-1].weight)  # type: ignore[arg-type]
    torch.nn.init.normal_(made.step.last.weight)
    return made


def test_a_batch_answers_like_its_steps(data: PreparedData, words: Words) -> None:
    texts, made = [sequence_of(step, words) for step in data.steps["train"]], network(words)
    with torch.no_grad():
        nodes, steps = made(batch(texts))
        isolated = [made(text) for text in texts]
    torch.testing.assert_close(nodes, torch.cat([a[0] for a in isolated]))
    torch.testing.assert_close(steps, torch.cat([a[1] for a in isolated]))


def test_a_node_sees_its_lane_and_no_other(data: PreparedData, words: Words) -> None:
    text, made = sequence_of(data.steps["train"][0], words), network(words)
    node = int(text.position.argmax())  # the last of the last lane
    moved = text.numbers.clone()
    moved[node] += 1.0
    with torch.no_grad():
        changed = (made(text)[0] - made(replace(text, numbers=moved))[0]).abs() > 1e-7
    reached = text.position[changed].numpy()
    assert len(reached) > 1
    assert reached.min() >= _start_of_last_lane(text.position.numpy())


def _start_of_last_lane(position: np.ndarray) -> int:
    places = np.sort(position)
    gaps = np.flatnonzero(np.diff(places) > 1)
    assert len(gaps) > 0
    assert (np.diff(places)[gaps] == GAP + 1).all()
    return int(places[gaps[-1] + 1])


def test_numbers_are_those_of_the_network_and_of_the_hardware(data: PreparedData, words: Words) -> None:
    step = data.steps["train"][0]
    text = sequence_of(step, words)
    assert text.numbers.shape == (len(work_values(step.data, "node_id")), NUM_NUMBERS)
    torch.testing.assert_close(text.numbers[: len(step.data["host"].x), : step.data["host"].x.shape[1]],
                               step.data["host"].x)  # fmt: skip
    other = step.data.clone()
    other["link"].x = other["link"].x + 1.0
    moved = sequence_of(replace(step, data=other), words).numbers - text.numbers
    num_links = step.data["link"].x.shape[1]
    assert (moved[:, -num_links:] == 1.0).all()
    assert (moved[:, :-num_links] == 0.0).all()


def test_the_error_by_hand(data: PreparedData, words: Words) -> None:
    """Untrained: the nodes' error is the weighted mean of |target|, the step's |log(step / base step)|."""
    step = data.steps["train"][0]
    target, share = (work_values(step.data, name) for name in ("target", "time_share"))
    use = np.isfinite(target)
    weight = 0.5 + 0.5 * np.sqrt(share[use])
    of_nodes = np.average(np.abs(target[use]), weights=weight)
    of_step = abs(math.log(step.step_us / base_step_us(step)))
    with torch.no_grad():
        text, log_step = sequence_of(step, words), torch.tensor([math.log(step.step_us)])
        result = error_of(SequenceNetwork(len(words), 16), text, log_step)
    assert float(result) == pytest.approx(of_nodes + of_step, rel=1e-4)


def test_untrained_it_answers_the_base(data: PreparedData, words: Words) -> None:
    step = data.steps["test"][0]
    answer = DirectSteps(SequenceNetwork(len(words), 16), words)
    rows = work_values(step.data, "node_id")
    np.testing.assert_array_equal(answer.latency_us(step)[rows], work_values(step.data, "base_us"))
    assert answer.step_us(step) == pytest.approx(base_step_us(step))


def test_a_fit_beats_the_base_and_repeats(data: PreparedData) -> None:
    first, again, other = (OpsAsText().bench(data).fit(SMALL, seed) for seed in (0, 0, 1))
    step = data.steps["test"][0]
    latency_us = first.answer.latency_us(step)
    assert latency_us is not None
    np.testing.assert_array_equal(latency_us, again.answer.latency_us(step))
    assert first.answer.step_us(step) == again.answer.step_us(step)
    assert first.answer.step_us(step) != other.answer.step_us(step)
    gemm = step.data["compute"]
    ours, measured = latency_us[gemm.node_id.numpy()], gemm.latency_us.numpy()
    off = np.abs(np.log(ours / measured)).max()
    assert off < 0.6 * np.abs(np.log(gemm.base_us.numpy() / measured)).min()
    comm = step.data[str(NodeType.COMM)]
    np.testing.assert_array_equal(latency_us[comm.node_id.numpy()], comm.base_us.numpy())


def test_steps_are_reported_in_the_way_that_errs_less(data: PreparedData, words: Words) -> None:
    """The network's latencies are the base's, its direct answer is three times the base's schedule."""
    made = SequenceNetwork(len(words), 16)
    torch.nn.init.constant_(made.step.last.bias, math.log(3.0))
    for factor, chosen in ((1.1, ScheduledSteps), (2.9, DirectSteps)):
        steps = [replace(s, step_us=factor * base_step_us(s)) for s in data.steps["val"]]
        assert type(better(made, words, steps)) is chosen


def test_the_error_of_steps_by_hand(data: PreparedData, words: Words) -> None:
    answer = DirectSteps(SequenceNetwork(len(words), 16), words)  # the base's steps
    steps = [
        replace(s, step_us=f * base_step_us(s)) for s, f in zip(data.steps["train"], (2.0, 0.5, 1.0), strict=False)
    ]
    assert step_error(answer, steps) == pytest.approx(2 * math.log(2) / 3, rel=1e-5)
    nodes = ScheduledSteps(answer.network, words)
    assert nodes.step_us(steps[0]) == step_time_us(steps[0], nodes.latency_us(steps[0]))


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
