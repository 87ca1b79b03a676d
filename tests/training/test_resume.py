"""A training that was ended goes on as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from synthetic import prepared

from gnnperf.training.fit import build_model, fit
from tests.training.programs import ENDED_IN_EPOCH_2, program, run, small


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
