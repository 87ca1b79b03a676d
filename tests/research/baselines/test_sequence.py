from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic import prepared

from gnnperf.core.schema import NodeType
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.data.step_time import step_time_us
from research.baselines.sequence import (
    SEQUENCE_START,
    DirectSteps,
    OpsAsText,
    ScheduledSteps,
    better,
    error_of,
    sequence_of,
    step_error,
)
from research.baselines.sequence_network import GAP, NUM_NUMBERS, SequenceNetwork, batch
from research.baselines.sequence_text import Words, fit_words
from research.baselines.step_head import base_step_us
from research.baselines.trees_table import work_values

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


def test_numbers_are_those_of_the_network(data: PreparedData, words: Words) -> None:
    step = data.steps["train"][0]
    text = sequence_of(step, words)
    assert text.numbers.shape == (len(work_values(step.data, "node_id")), NUM_NUMBERS)
    torch.testing.assert_close(text.numbers[: len(step.data["host"].x), : step.data["host"].x.shape[1]],
                               step.data["host"].x)  # fmt: skip


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
