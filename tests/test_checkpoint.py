from __future__ import annotations

import hashlib
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from synthetic import prepared

from gnnperf.checkpoint import Checkpoint, load_checkpoint, make_checkpoint, save_checkpoint
from gnnperf.errors import InputError
from gnnperf.intervals import Intervals, NodeIntervals, StepIntervals
from gnnperf.models.config import ModelConfig
from gnnperf.models.gnn import TypedGNN


@pytest.fixture
def made(tmp_path: Path) -> Checkpoint:
    data, config = prepared(tmp_path), ModelConfig(hidden_channels=8)
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
    given = Intervals(nodes, steps)
    save_checkpoint(tmp_path / "checkpoint.pt", replace(made, intervals=given))
    assert load_checkpoint(tmp_path / "checkpoint.pt").intervals == given
    assert made.intervals is None


def test_ablations_travel_with_it(tmp_path: Path) -> None:
    data, config = prepared(tmp_path), ModelConfig(hidden_channels=8, reverse=False, hardware_nodes=False)
    data = replace(data, floors=replace(data.floors, residual=False))
    save_checkpoint(tmp_path / "checkpoint.pt", make_checkpoint(TypedGNN(config, data.vocabulary), config, data, {}))
    loaded = load_checkpoint(tmp_path / "checkpoint.pt")
    assert loaded.model == config
    assert not loaded.floors.residual


def test_it_says_what_it_was_made_from(made: Checkpoint) -> None:
    assert made.provenance["training"] == {"seed": 3}
    assert made.provenance["training_runs"] == ["a", "b", "c", "d"]
    assert set(made.provenance["libraries"]) >= {"torch", "torch-geometric", "lightning"}
    assert len(made.provenance["data_fingerprint"]) == 32


def test_nothing_is_left_beside_it(tmp_path: Path, made: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "out"
    save_checkpoint(folder / "checkpoint.pt", made)
    assert [p.name for p in folder.iterdir()] == ["checkpoint.pt"]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = (folder / "checkpoint.pt").read_bytes()
    monkeypatch.setattr("torch.save", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(folder / "checkpoint.pt", made)
    assert [p.name for p in folder.iterdir()] == ["checkpoint.pt"]
    assert (folder / "checkpoint.pt").read_bytes() == before


class Evil:
    """Unpickling it would call something."""

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return exec, ("raise SystemExit('code from a checkpoint ran')",)


def test_refuses_what_is_not_a_checkpoint(tmp_path: Path, made: Checkpoint) -> None:
    good, path = tmp_path / "good.pt", tmp_path / "checkpoint.pt"
    save_checkpoint(good, made)
    with pytest.raises(InputError, match="no such file"):
        load_checkpoint(tmp_path / "nowhere.pt")
    for content in (b"", b"text", good.read_bytes()[:2000], pickle.dumps(Evil()), good.read_bytes()[1000:]):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a checkpoint of gnnperf, or damaged"):
            load_checkpoint(path)
    torch.save({"state_dict": {}}, path)
    with pytest.raises(InputError, match="not a checkpoint of gnnperf"):
        load_checkpoint(path)


def test_refuses_another_schema_and_missing_parts(tmp_path: Path, made: Checkpoint) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, made)
    plain = torch.load(path, weights_only=True)
    for change, message in (
        ({"schema_version": 0}, "schema version 0"),
        ({"features": {}}, "features of another gnnperf"),
        ({"weights": {}}, "the file is damaged"),
        ({"model": {"hidden_channels": 16}}, "the file is damaged"),
        ({"model": {"hidden_channels": -16}}, "the file is damaged"),
        ({"vocabulary": None}, "the file is damaged"),
    ):
        torch.save(plain | change, path)
        with pytest.raises(InputError, match=message):
            load_checkpoint(path)
