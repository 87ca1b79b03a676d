from dataclasses import replace
from pathlib import Path

import pytest
import torch
from synthetic import SPLIT, prepared, read
from torch import Tensor

from gnnperf.core import WORK_TYPES, InputError
from gnnperf.gnn.checkpoint import Checkpoint, make_checkpoint, save_checkpoint
from gnnperf.gnn.data.prepare import PreparedData, prepare
from gnnperf.gnn.data.runs import RunGraph
from gnnperf.gnn.finetune import begin_from, load_start
from gnnperf.gnn.models.gnn import TypedGNN, outputs_of
from gnnperf.gnn.settings import DataConfig, ModelConfig

CONFIG = ModelConfig(hidden_channels=8, num_layers=2)
STRANGE = replace(SPLIT, train=("d",), val=("e",), test=("f",))


@pytest.fixture(scope="module")
def path(data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a network that corrects the base of every node."""
    torch.manual_seed(0)
    network = TypedGNN(CONFIG, data.vocabulary)
    for t in map(str, WORK_TYPES):
        torch.nn.init.normal_(network.get_parameter(f"heads.{t}.last.weight"), std=0.3)
    path = tmp_path_factory.mktemp("start") / "checkpoint.pt"
    save_checkpoint(path, make_checkpoint(network, CONFIG, data, {}))
    return path


@pytest.fixture(scope="module")
def start(path: Path) -> Checkpoint:
    return load_start(path, CONFIG)


@pytest.fixture(scope="module")
def again(start: Checkpoint, toy_cache: Path) -> PreparedData:
    """The same runs, to train on."""
    return prepared(toy_cache, earlier=start.earlier)


@pytest.fixture(scope="module")
def new(start: Checkpoint, toy_cache: Path) -> PreparedData:
    """Runs with other tokens."""
    return prepare(DataConfig(cache_dir=str(toy_cache)), STRANGE, strange, start.earlier)


def strange(run: str) -> RunGraph:
    """The toy in words that no one heard."""
    result = read(run)
    kernel = result.graph.nodes["node_type"] == "compute"
    nodes = result.graph.nodes.astype({"op_name": object, "dtype": object})
    nodes.loc[kernel, ["op_name", "dtype"]] = ["mine::op", "float8"]
    nodes = nodes.astype({"op_name": "category", "dtype": "category"})
    return replace(result, graph=replace(result.graph, nodes=nodes, fingerprint=f"strange {run}"))


def begun(start: Checkpoint, data: PreparedData) -> TypedGNN:
    torch.manual_seed(1)
    return begin_from(TypedGNN(CONFIG, data.vocabulary), start).eval()


def residuals(network: TypedGNN, data: PreparedData) -> dict[str, Tensor]:
    return {t: estimate.residual for t, estimate in outputs_of(network, data.steps["test"][0].data).items()}


def test_it_predicts_as_before_on_the_runs_it_knows(start: Checkpoint, again: PreparedData) -> None:
    before, after = residuals(start.network(), again), residuals(begun(start, again), again)
    for node_type in before:
        assert torch.equal(before[node_type], after[node_type])
    assert float(before["compute"].abs().max()) > 0.01


def test_new_words_are_what_unknown_words_were(start: Checkpoint, new: PreparedData) -> None:
    """Two vocabularies, one prediction: the earlier network gets the unknown token, and nothing that never varied."""
    data = replace(new, steps={"test": tuple(replace(step, data=step.data.clone()) for step in new.steps["test"])})
    assert data.vocabulary.words["compute"]["op_name"] == ("aten::mm", "mine::op")
    network, codes = begun(start, data), data.steps["test"][0].data["compute"].codes
    assert int(codes.max()) == 2
    after = residuals(network, data)["compute"]
    for t in map(str, WORK_TYPES):
        known = torch.tensor([start.earlier.vocabulary.num_codes(t, f) for f in start.earlier.vocabulary.words[t]])
        store = data.steps["test"][0].data[t]
        store.codes = torch.where(store.codes < known, store.codes, torch.zeros_like(store.codes))
        store.x[:, start.earlier.normalizer.constant(t)] = 0.0  # as its own normalizer shows it
    assert torch.equal(residuals(start.network(), data)["compute"], after)


def test_everything_learns_from_there(start: Checkpoint, again: PreparedData) -> None:
    network = begun(start, again).train()
    estimates = network(again.steps["train"][0].data)
    sum(estimate.residual.square().sum() for estimate in estimates.values()).backward()
    for name in ("layers.1.out.weight", "encoders.compute.linear.weight", "encoders.host.embeddings.0.weight"):
        gradient = network.get_parameter(name).grad
        assert gradient is not None and bool(gradient.any()), name


@pytest.mark.parametrize(
    ("changed", "given"),
    [
        ({"hidden_channels": 16}, r"model\.hidden_channels=16: not the network .* Allowed: 8, as in the checkpoint"),
        ({"num_layers": 1}, r"model\.num_layers=1.* 2, as in the checkpoint"),
    ],
)  # fmt: skip
def test_another_network_is_refused(path: Path, changed: dict[str, object], given: str) -> None:
    with pytest.raises(InputError, match=given):
        load_start(path, replace(CONFIG, **changed))  # type: ignore[arg-type]


def test_corrections_of_other_devices_are_refused(tmp_path: Path, start: Checkpoint) -> None:
    constants, floors = start.earlier.base
    earlier = replace(start.earlier, base=(replace(constants, device_kind="cpu"), floors))
    with pytest.raises(InputError, match="the checkpoint is of runs on a cpu, these are on a gpu"):
        prepared(tmp_path / "cpu", earlier=earlier)


def test_the_base_it_corrects_stays(tmp_path: Path, start: Checkpoint, new: PreparedData) -> None:
    assert start.earlier.base == (new.constants, new.floors)
    assert new.floors != prepare(DataConfig(cache_dir=str(tmp_path)), STRANGE, strange).floors
