import hashlib
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from synthetic import cluster, toy_run

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.errors import InputError
from gnnperf.gnn.checkpoint import Checkpoint, load_checkpoint, make_checkpoint, save_checkpoint
from gnnperf.gnn.data.archive import read_archive, write_archive
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.intervals.nodes import NodeIntervals
from gnnperf.gnn.intervals.steps import Intervals, StepIntervals
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.models.stored import MAX_WEIGHT
from gnnperf.gnn.settings import ModelConfig
from gnnperf.predict.gnn import GnnPredictor


@pytest.fixture(scope="module")
def made(data: PreparedData) -> Checkpoint:
    config = ModelConfig(hidden_channels=8, num_layers=1)
    return make_checkpoint(TypedGNN(config, data.vocabulary), config, data, {"seed": 3})


def test_round_trip(tmp_path: Path, made: Checkpoint) -> None:
    saved = save_checkpoint(tmp_path / "deep" / "checkpoint.pt", made)
    path = tmp_path / "deep" / "checkpoint.pt"
    assert saved.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    loaded = load_checkpoint(path)
    assert loaded.sha256 == saved.sha256
    for name in ("model", "vocabulary", "constants", "floors", "provenance"):
        assert getattr(loaded, name) == getattr(made, name), name
    for part in ("mean", "scale"):
        one, two = getattr(loaded.normalizer, part), getattr(made.normalizer, part)
        assert all(torch.equal(one[t], two[t]) for t in two)
    assert all(torch.equal(loaded.weights[k], made.weights[k]) for k in made.weights)
    assert not loaded.network().training


def test_intervals_travel_with_it(tmp_path: Path, made: Checkpoint) -> None:
    nodes = NodeIntervals(0.9, {"cpu | gnn": (-0.5, 0.25)}, ("cpu",))
    steps = {"hybrid": StepIntervals(0.8, {"host": 0.1}, 0.2, 1.5, ("cpu",))}
    given = Intervals(nodes, steps, steps["hybrid"])
    save_checkpoint(tmp_path / "checkpoint.pt", replace(made, intervals=given))
    assert load_checkpoint(tmp_path / "checkpoint.pt").intervals == given
    assert made.intervals is None


def test_it_states_what_it_was_made_from(made: Checkpoint) -> None:
    assert made.provenance["training"] == {"seed": 3}
    assert made.provenance["training_runs"] == ["a", "b", "c", "d"]
    assert set(made.provenance["libraries"]) >= {"torch", "torch-geometric", "lightning"}
    assert len(made.provenance["data_fingerprint"]) == 32


class Evil:
    """Unpickling it would call something."""

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return exec, ("raise SystemExit('code from a checkpoint ran')",)


def test_refuses_what_is_not_a_checkpoint(tmp_path: Path, made: Checkpoint) -> None:
    good, path = tmp_path / "good.pt", tmp_path / "checkpoint.pt"
    save_checkpoint(good, made)
    with pytest.raises(InputError, match="no such file"):
        load_checkpoint(tmp_path / "nowhere.pt")
    with pytest.raises(InputError, match=str(tmp_path)):
        load_checkpoint(tmp_path)
    for content in (b"", b"text", good.read_bytes()[:2000], pickle.dumps(Evil()), good.read_bytes()[1000:]):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a checkpoint of gnnperf, or damaged"):
            load_checkpoint(path)
    write_archive(path, {"state_dict": {}}, {})
    with pytest.raises(InputError, match="not a gnnperf checkpoint"):
        load_checkpoint(path)


@pytest.fixture(scope="module")
def saved(made: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "checkpoint.pt"
    nodes = NodeIntervals(0.9, {"v100 | gnn": (-math.inf, 0.25)}, ("v100",))
    steps = {"hybrid": StepIntervals(0.8, {"host": 0.1}, 0.2, math.inf, ("v100",))}
    save_checkpoint(path, replace(made, intervals=Intervals(nodes, steps)))
    return path


def _with(saved: Path, path: Path, field: str, value: Any) -> Path:
    """A copy whose value at this dotted field is another one, or what a function makes of it."""
    stored = read_archive(saved, "")
    tensors, (*parents, last) = dict(stored.tensors), field.split("/")
    parent = stored.plain
    if parents and parents[0] in ("weights", "normalizer"):
        parent, parents, last = tensors, [], field
    for name in parents:
        parent = parent[name]
    parent[last] = value(parent[last]) if callable(value) else value
    write_archive(path, stored.plain, tensors)
    return path


WEIGHT = "weights/heads.host.last.weight"


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("format", "another", "not a gnnperf checkpoint"),
        ("schema_version", 0, "schema version 0"),
        ("schema_version", "9", "schema_version"),
        ("features", {}, "features of another gnnperf"),
        ("features", [1.0], "damaged"),
        ("model", {"hidden_channels": 16}, "weights"),
        ("model/hidden_channels", 2**40, "hidden_channels"),
        ("model/hidden_channels", 8.0, "hidden_channels"),
        ("model/hidden_channels", True, "hidden_channels"),
        ("model/num_layers", 64, "weights"),
        ("model/dropout", math.nan, "dropout"),
        ("vocabulary", None, "vocabulary"),
        ("vocabulary/words/host/op_name", ["a", "a"], "vocabulary"),
        ("vocabulary/words/host/op_name", [3], "vocabulary"),
        ("vocabulary/words/host", {}, "vocabulary"),
        ("constants", {}, "constants"),
        ("constants/roofline_power", math.nan, "roofline_power"),
        ("constants/segment_us", {"T1": 1.0}, "segment_us"),
        ("constants/lag_us/gpu/launch", -1.0, "launch"),
        ("constants/host_overhead_us", {"T1 | op": 1e300}, "host_overhead_us"),
        ("floors/overall_us", math.inf, "overall_us"),
        ("floors/by_type_us", {"host": -1.0}, "by_type_us"),
        ("normalizer/scale/host", lambda t: t * 0, "normalizer"),
        ("normalizer/mean/host", lambda t: t + math.nan, "normalizer"),
        ("normalizer/high/comm", lambda t: t[:3], "normalizer"),
        (WEIGHT, lambda t: t + math.nan, "weights"),
        (WEIGHT, lambda t: t + 1e6, "weights"),
        (WEIGHT, lambda t: t[:1], "weights"),
        ("weights/extra", torch.zeros(1), "weights"),
        ("trust/devices", "v100", "trust"),
        ("trust/programs", {"toy": "aten::mm"}, "trust"),
        ("intervals/nodes/log_bounds", {"a": [math.nan, 1.0]}, "log_bounds"),
        ("intervals/steps/hybrid/scores", -1.0, "scores"),
        ("provenance", [], "damaged"),
        ("provenance/training", "x" * 2**23, "provenance|damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)  # fmt: skip
def test_a_field_of_another_kind_or_range_is_refused(
    tmp_path: Path, saved: Path, field: str, value: object, named: str
) -> None:
    path = _with(saved, tmp_path / "checkpoint.pt", field, value)
    with pytest.raises(InputError, match=named) as caught:
        load_checkpoint(path)
    assert caught.value.where == str(path)


def test_extreme_but_allowed_numbers_predict_finite_latencies(tmp_path: Path, saved: Path) -> None:
    """Weights and inputs at their limits overflow nowhere."""
    stored, sign = read_archive(saved, ""), torch.Generator().manual_seed(0)
    tensors = dict(stored.tensors)
    for name, tensor in stored.tensors.items():
        if name.startswith("weights/"):
            tensors[name] = MAX_WEIGHT * (2.0 * torch.randint(0, 2, tensor.shape, generator=sign) - 1.0)
        if name.startswith("normalizer/scale/"):
            tensors[name] = torch.where(tensor.isfinite(), 1e-5 * tensor, tensor)
    write_archive(tmp_path / "checkpoint.pt", stored.plain | {"provenance": {"training": math.nan}}, tensors)
    loaded = load_checkpoint(tmp_path / "checkpoint.pt")
    assert loaded.provenance == {"training": None}
    values = GnnPredictor(loaded).predict(toy_run(ord("a")), cluster())
    base = AnalyticPredictor(loaded.constants).predict(toy_run(ord("a")), cluster()).latency_us
    known = np.isfinite(base)
    assert np.isfinite(values.latency_us[known]).all() and (values.latency_us[known] >= 0).all()
    assert (values.latency_us[known] != base[known]).any()
