from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic import SPLIT, prepared, read
from torch_geometric.nn import SAGEConv

from gnnperf.gnn.data.prepare import PreparedData
from research.baselines.judge import Answer
from research.baselines.pooled import POOLED_START, GraphSage, PooledAnswer, PooledSage, as_graph, batch, targets
from research.baselines.step_head import base_step_us

SMALL = {**POOLED_START, "hidden_channels": 8}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepared(tmp_path_factory.mktemp("cache"))


def network(data: PreparedData) -> GraphSage:
    """With a last layer that is not zero."""
    torch.manual_seed(0)
    made = GraphSage(data.vocabulary, 8).eval()
    torch.nn.init.normal_(made.head.last.weight)
    return made


def test_a_step_is_one_graph_of_all_its_edges_both_ways(data: PreparedData) -> None:
    step = data.steps["train"][0]
    graph = as_graph(step, data.vocabulary)
    pairs = {tuple(pair) for pair in graph.ends.T.tolist()}
    assert len(pairs) == graph.ends.shape[1]
    assert pairs == {(b, a) for a, b in pairs}
    table = step.graph.edges[["src", "dst"]].itertuples(index=False, name=None)
    assert len(pairs) == 2 * len({frozenset(pair) for pair in table})


def test_a_batch_answers_like_its_steps(data: PreparedData) -> None:
    graphs = [as_graph(step, data.vocabulary) for step in data.steps["train"]]
    made = network(data)
    with torch.no_grad():
        together, isolated = made(batch(graphs)), torch.cat([made(g) for g in graphs])
    torch.testing.assert_close(together, isolated)
    assert together.std() > 0


def test_neighbors_count(data: PreparedData) -> None:
    graph, made = as_graph(data.steps["train"][0], data.vocabulary), network(data)
    with torch.no_grad():
        assert made(graph) != made(replace(graph, ends=graph.ends[:, :0]))
    assert all(isinstance(layer, SAGEConv) for layer in made.layers)


def test_the_target_is_what_the_base_misses(data: PreparedData) -> None:
    steps = data.steps["train"]
    result = targets(steps, [as_graph(s, data.vocabulary) for s in steps])
    expected = [math.log(s.step_us / base_step_us(s)) for s in steps]
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_it_has_no_latencies_and_untrained_answers_the_base(data: PreparedData) -> None:
    step = data.steps["test"][0]
    answer: Answer = PooledAnswer(GraphSage(data.vocabulary, 8), data.vocabulary)
    assert answer.latency_us(step) is None
    assert answer.step_us(step) == pytest.approx(base_step_us(step))


def test_a_fit_beats_the_base_and_repeats(data: PreparedData) -> None:
    """All steps take three times their base: a step time that no feature tells but that all share."""
    steps = {part: tuple(replace(s, step_us=3 * base_step_us(s)) for s in steps) for part, steps in data.steps.items()}
    data = replace(data, steps=steps)
    settings = {**SMALL, "learning_rate": 0.02}
    first, again, other = (PooledSage().bench(data).fit(settings, seed) for seed in (0, 0, 1))
    step = data.steps["test"][0]
    assert abs(math.log(first.answer.step_us(step) / step.step_us)) < 0.3  # the base: log 3 = 1.1
    assert first.answer.step_us(step) == again.answer.step_us(step)
    assert first.answer.step_us(step) != other.answer.step_us(step)
    assert first.val_error == pytest.approx(
        abs(math.log(first.answer.step_us(steps["val"][0]) / steps["val"][0].step_us)), abs=1e-5
    )


def test_words_and_hardware_reach_the_answer(data: PreparedData) -> None:
    graph, made = as_graph(data.steps["train"][0], data.vocabulary), network(data)
    moved = {t: x + 1.0 for t, x in graph.hardware.items()}
    with torch.no_grad():
        plain = made(graph)
        assert made(replace(graph, codes=torch.zeros_like(graph.codes))) != plain
        assert made(replace(graph, hardware=moved)) != plain
    assert read(SPLIT.train[0]).graph.num_nodes == len(graph.work) + sum(map(len, graph.hardware.values()))
