from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic import cluster, toy_run
from torch_geometric.data import Batch, HeteroData

from gnnperf.analytic import AnalyticPredictor
from gnnperf.gnn import ModelConfig, features
from gnnperf.gnn.data.floors import fit_floors
from gnnperf.gnn.data.module import batch_of
from gnnperf.gnn.data.normalizer import fit_normalizer
from gnnperf.gnn.data.vocabulary import Vocabulary, fit_vocabulary
from gnnperf.gnn.models.gnn import WORK, Head, TypedGNN, joint_messages
from gnnperf.gnn.models.message_passing import MESSAGE_RELATIONS, Dropout, MessagePassing, arrange
from gnnperf.graph.execution_graph import ExecutionGraph

GRAPHS = [toy_run(1), toy_run(2)]
VOCABULARY, FLOORS = fit_vocabulary([g.nodes for g in GRAPHS]), fit_floors([g.nodes for g in GRAPHS])


def data_of(graph: ExecutionGraph) -> HeteroData:
    return features(graph, cluster(), AnalyticPredictor().predict(graph, cluster()), VOCABULARY, FLOORS)


NORMALIZER = fit_normalizer([data_of(g) for g in GRAPHS])


def network(vocabulary: Vocabulary = VOCABULARY, **settings: float | bool) -> TypedGNN:
    """A network whose heads do not answer zero."""
    torch.manual_seed(0)
    made = TypedGNN(ModelConfig(**{"hidden_channels": 8, "num_layers": 2, **settings}), vocabulary).eval()  # type: ignore[arg-type]
    for head in made.heads.values():
        assert isinstance(head, Head)
        torch.nn.init.normal_(head.last.weight)
    return made


def estimate(model: TypedGNN, data: HeteroData) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        return {t: a.residual for t, a in model(NORMALIZER.apply(data)).items()}


def test_an_untrained_network_predicts_the_base() -> None:
    fresh = TypedGNN(ModelConfig(hidden_channels=8), VOCABULARY)
    estimates = fresh(NORMALIZER.apply(data_of(GRAPHS[0])))
    assert set(estimates) == set(WORK)
    assert all(torch.equal(a.residual, torch.zeros_like(a.residual)) for a in estimates.values())
    assert estimates["host"].residual.shape == (8,)
    assert estimates["memory"].scheduled_residual.shape == (0,)


@pytest.mark.parametrize("collate", [Batch.from_data_list, batch_of])
def test_a_batch_of_graphs_equals_graph_by_graph(collate: Callable[[list[HeteroData]], HeteroData]) -> None:
    model, graphs = network(), [data_of(g) for g in GRAPHS]
    together = estimate(model, collate(graphs))
    apart = [estimate(model, g) for g in graphs]
    for node_type in WORK:
        assert torch.allclose(together[node_type], torch.cat([a[node_type] for a in apart]), atol=1e-6), node_type


def test_the_order_of_nodes_is_irrelevant() -> None:
    graph = GRAPHS[0]
    order = np.random.default_rng(0).permutation(graph.num_nodes)  # new row -> old row
    place = np.argsort(order)  # old row -> new row
    nodes = graph.nodes.iloc[order].reset_index(drop=True).assign(node_id=np.arange(graph.num_nodes))
    edges = graph.edges.assign(src=place[graph.edges["src"]], dst=place[graph.edges["dst"]])
    shuffled = data_of(replace(graph, nodes=nodes, edges=edges.iloc[::-1].reset_index(drop=True)).validate())
    model, plain = network(), data_of(graph)
    before, after = estimate(model, plain), estimate(model, shuffled)
    for node_type in WORK:
        rows = {int(r): i for i, r in enumerate(plain[node_type].node_id)}
        mapped = [rows[int(order[r])] for r in shuffled[node_type].node_id]
        assert torch.allclose(after[node_type], before[node_type][mapped], atol=1e-6), node_type


def test_messages_reach_as_far_as_there_are_layers_and_only_there() -> None:
    plain, changed = data_of(GRAPHS[0]), data_of(GRAPHS[0])
    changed["compute"].x[0] += 1.0  # the gemm of rank 0
    moved = {
        layers: (
            estimate(network(num_layers=layers), changed)["host"] != estimate(network(num_layers=layers), plain)["host"]
        )
        for layers in (0, 1)
    }
    assert not moved[0].any()
    assert moved[1].tolist() == [False, True, *[False] * 6]  # its launch only


def test_messages_join_work_only() -> None:
    data = data_of(GRAPHS[0])
    sizes = {t: len(data[t].x) for t in WORK}
    messages = joint_messages(data, sizes)
    assert set(messages.slots_of) <= set(MESSAGE_RELATIONS)
    assert int(messages.receivers.max()) < sum(sizes.values())


def test_a_mean_of_senders_by_hand() -> None:
    ends = {"follows": torch.tensor([[0, 1, 2], [3, 3, 1]]), "waits": torch.zeros(2, 0, dtype=torch.long),
            "feeds": torch.tensor([[3], [1]])}  # fmt: skip
    state = torch.tensor([[2.0], [4.0], [8.0], [1.0]], requires_grad=True)
    messages = arrange(ends, num_nodes=4)
    means = messages.means(state)
    assert messages.receivers.tolist() == [1, 3, 1]
    assert {relation: mean.tolist() for relation, mean in means.items()} == {
        "follows": [[8.0], [3.0]], "feeds": [[1.0]]}  # fmt: skip
    (3.0 * means["follows"][1] + 5.0 * means["feeds"][0]).sum().backward()
    assert state.grad is not None
    assert state.grad.tolist() == [[1.5], [1.5], [0.0], [5.0]]


def test_a_layer_without_any_edge_keeps_every_node() -> None:
    state, none = torch.randn(3, 8), arrange({}, num_nodes=3)
    out = MessagePassing(8, 0.0, MESSAGE_RELATIONS)(MessagePassing(8, 0.0, ())(state, none), none)
    assert out.shape == (3, 8)
    assert torch.isfinite(out).all()


def test_an_unknown_op_is_the_unknown_word_and_known_by_its_text() -> None:
    new = [replace(g, nodes=g.nodes.assign(op_name=g.nodes["op_name"].astype(object).replace("aten::mm", name)))
           for g in GRAPHS[:1] for name in ("aten::new", "aten::other")]  # fmt: skip
    model = network(hidden_channels=32)
    one, two = (estimate(model, data_of(g)) for g in new)
    assert torch.equal(data_of(new[0])["compute"].codes, data_of(new[1])["compute"].codes)
    assert not torch.equal(one["compute"], two["compute"])
    assert torch.isfinite(one["compute"]).all()
    assert not torch.equal(one["compute"], estimate(model, data_of(GRAPHS[0]))["compute"])


def test_words_are_dropped_in_training_only() -> None:
    model, data = network(op_dropout=0.9), NORMALIZER.apply(data_of(GRAPHS[0]))
    assert torch.equal(model(data)["host"].residual, model(data)["host"].residual)
    model.train()
    assert not torch.equal(model(data)["host"].residual, model(data)["host"].residual)


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean_in_training_only(share: float) -> None:
    torch.manual_seed(0)
    state = torch.ones(1001, 67, requires_grad=True)  # not a multiple of four entries
    kept = Dropout(share)(state)
    assert (kept == 0).float().mean().item() == pytest.approx(share, abs=0.01)  # five standard deviations
    assert kept[kept != 0].unique().tolist() == pytest.approx([1 / (1 - share)])
    kept.sum().backward()
    assert state.grad is not None and torch.equal(state.grad, kept.detach())
    assert Dropout(share).eval()(state) is state and Dropout(0.0)(state) is state
