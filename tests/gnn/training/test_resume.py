"""A training that was ended goes on as if nothing had happened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from synthetic import prepared

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.models.message_passing import ModelConfig
from gnnperf.gnn.training.config import OptimConfig
from gnnperf.gnn.training.fit import build_model, fit
from gnnperf.gnn.training.resume import resume_path
from tests.gnn.training.programs import ENDED_IN_EPOCH_2, program, run, small


@pytest.mark.slow
@pytest.mark.parametrize(("signal", "code"), [("SIGKILL", -9), ("SIGTERM", 143)])
def test_an_ended_training_resumes_to_the_same_bits(tmp_path: Path, signal: str, code: int) -> None:
    ended = run(program(tmp_path, ENDED_IN_EPOCH_2.format(signal=signal)), overrides=[f"out={tmp_path / 'parts'}"])
    assert ended.returncode == code, ended.stderr
    assert ("stopped by SIGTERM; resume=auto goes on" in ended.stderr) == (signal == "SIGTERM")
    assert not (tmp_path / "parts" / "checkpoint.pt").exists()
    assert torch.load(tmp_path / "parts" / "last.ckpt", weights_only=True)["epoch"] == 1

    data = prepared(tmp_path / "cache")
    configs = (small(tmp_path / "parts", resume="auto"), small(tmp_path / "whole"))
    resumed, whole = (fit(config, data, build_model(config, data)).state_dict() for config in configs)
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    last = [torch.load(tmp_path / out / "last.ckpt", weights_only=True) for out in ("parts", "whole")]
    assert last[0]["epoch"] == last[1]["epoch"] == 3
    assert all(torch.equal(last[0]["state_dict"][name], value) for name, value in last[1]["state_dict"].items())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepared(tmp_path_factory.mktemp("cache"))


def test_resume_paths(tmp_path: Path) -> None:
    assert resume_path(None, tmp_path) is None
    assert resume_path("auto", tmp_path) is None
    with pytest.raises(InputError, match=r"resume=nowhere\.ckpt: no such file"):
        resume_path("nowhere.ckpt", tmp_path)


def test_what_is_not_of_this_training_is_refused(tmp_path: Path, data: PreparedData) -> None:
    """Another network, other settings, another start, no checkpoint at all; more epochs are the same training."""
    begun = small(tmp_path)
    fit(begun, data, build_model(begun, data))
    again = replace(begun, resume="auto", trainer=replace(begun.trainer, max_epochs=5))
    fit(again, data, build_model(again, data))
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["epoch"] == 4

    given = replace(again, data=replace(again.data, bucket_bytes=7e4))
    with pytest.raises(InputError, match=r"another training: data\.bucket_bytes differ"):
        fit(given, data, build_model(given, data))
    other = replace(again, seed=9)
    with pytest.raises(InputError, match="another training: seed, network at the start differ"):
        fit(other, data, build_model(other, data))
    with pytest.raises(InputError, match="another training: network at the start differ"):
        fit(again, data, build_model(other, data))  # as `init_from` of another checkpoint would begin
    slower = replace(again, optim=OptimConfig(learning_rate=1e-4))
    with pytest.raises(InputError, match=r"another training: optim\.learning_rate differ"):
        fit(slower, data, build_model(slower, data))
    wider = replace(again, model=ModelConfig(hidden_channels=16))
    with pytest.raises(InputError, match="of another network"):
        fit(wider, data, build_model(wider, data))
    (tmp_path / "last.ckpt").write_text("not a checkpoint")
    with pytest.raises(InputError, match="not a checkpoint"):
        fit(again, data, build_model(again, data))
