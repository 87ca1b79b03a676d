"""Recorded data sets as a PyG dataset: labels give an error of zero, and every metric is a number computed by hand."""

import pytest
import torch
from torch import Tensor

from gnnperf import datasets
from gnnperf.core import InputError
from gnnperf.datasets import NODE_TYPES, Evaluator, ExecutionGraphs
from gnnperf.gnn.data.prepare import PreparedData


@pytest.fixture
def train(data: PreparedData, monkeypatch: pytest.MonkeyPatch) -> ExecutionGraphs:
    monkeypatch.setattr(datasets, "prepared", lambda *_: data)
    return ExecutionGraphs(split="train")


def labels(dataset: ExecutionGraphs, factor: float = 1.0) -> list[dict[str, Tensor]]:
    """Measured latencies times `factor`; the base where there is no label."""
    return [
        {t: torch.where(graph[t].latency_us > 0, graph[t].latency_us * factor, graph[t].base_us) for t in NODE_TYPES}
        for graph in dataset
    ]


def test_a_graph_holds_features_codes_base_and_label_per_node_type(train: ExecutionGraphs) -> None:
    assert len(train) == len(train.steps) > 0
    for t in NODE_TYPES:
        store = train[0][t]
        assert len(store.x) == len(store.codes) == len(store.base_us) == len(store.latency_us) == len(store.node_id)
        assert store.codes.size(1) == len(train.num_codes[t])
        assert all((store.codes < torch.tensor(train.num_codes[t])).flatten().tolist())


def test_the_labels_themselves_have_no_error_and_intervals_around_them_cover_all(train: ExecutionGraphs) -> None:
    exact = labels(train)
    wide = [{t: (us * 0.9, us * 1.1) for t, us in given.items()} for given in exact]
    result = Evaluator(train).evaluate(exact, wide)
    assert result["time_weighted_error"] == pytest.approx(0.0, abs=1e-6)
    assert result["signed_error"] == pytest.approx(0.0, abs=1e-6)
    assert result["coverage"] == 1.0
    assert result["interval_ratio"] == pytest.approx(1.1 / 0.9)
    first = Evaluator(train[:1]).evaluate(exact[:1])  # of a slice
    assert first["step_error"] == pytest.approx(first["step_error_max"])


def test_latencies_a_quarter_too_long_err_by_a_quarter(train: ExecutionGraphs) -> None:
    longer = labels(train, 1.25)
    beyond = [{t: (us * 1.01, us * 1.1) for t, us in given.items()} for given in longer]
    result = Evaluator(train).evaluate(longer, beyond)
    assert result["time_weighted_error"] == pytest.approx(0.25, rel=1e-4)
    assert result["signed_error"] == pytest.approx(0.25, rel=1e-4)
    assert result["gmae"] == pytest.approx(0.25, rel=1e-4)
    assert result["coverage"] == 0.0
    exact = Evaluator(train).evaluate(labels(train))
    assert result["step_signed_error"] > exact["step_signed_error"]


def test_a_prediction_that_does_not_fit_the_graphs_is_refused(train: ExecutionGraphs) -> None:
    exact = labels(train)
    with pytest.raises(InputError, match=f"0 predictions for {len(train)} graphs"):
        Evaluator(train).evaluate([])
    exact[0]["host"] = exact[0]["host"][:-1]
    with pytest.raises(InputError, match="one finite latency in us per node"):
        Evaluator(train).evaluate(exact)
    with pytest.raises(InputError, match="split"):
        ExecutionGraphs(split="testing")
