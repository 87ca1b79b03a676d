"""`gnnperf search`: a table, JSON, a plan to go on with, one message for bad input."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gnnperf.generate import read_plan
from tests.command import Command

RAW: dict[str, Any] = {
    "name": "mine",
    "model": {"layers": 2, "hidden": 256, "heads": 2, "sequence": 128, "vocabulary": 500, "dtype": "bfloat16"},
    "block": {"attention": "flash", "norm": "rms_norm", "activation": "swiglu", "positions": "rotary", "bias": False,
              "dropout": False, "tied_embedding": False},
    "parallelism": {"data": 2},
    "schedule": {"global_batch": 4, "micro_batch": 1},
    "source": "a test",
}  # fmt: skip


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(RAW))
    return path


def search(plan: Path | str, *more: object, devices: str = "2") -> tuple[object, ...]:
    return ("search", plan, "--gpu", "a100_sxm_80gb", "--devices", devices, *more)


def test_a_table_for_a_reader(plan: Path, command: Command) -> None:
    shown = command.shown(*search(plan, "--top", 3))
    assert "mine on 2 x a100_sxm_80gb (cluster dgx_a100), global batch 4 x 128 tokens" in shown
    for text in ("why the others lose:", "best of 200 random", "as the file has it", "Proven:", "GPU-h/step"):
        assert text in shown
    assert shown.count("tokens/s/GPU") == 1


def test_json_holds_every_judged_plan_its_price_and_the_written_one(
    plan: Path, tmp_path: Path, command: Command
) -> None:
    out = tmp_path / "best.yaml"
    result = command.document(*search(plan, "--price", 3.6, "--by", "cost", "--out", out, devices="1,2"))
    assert (result["proven"], result["gap"], result["devices"]) == (True, 0.0, [1, 2])
    best, plans = result["plans"][0], result["plans"]
    costs = [one["gpu_hours_per_step"] for one in plans]
    assert costs == sorted(costs) and len(costs) == result["num_judged"] and best["on_front"]
    assert all(one["lower_bound_us"] <= one["step_us"] for one in plans)
    hours = best["step_us"] / 3600e6 * best["parallelism"]["data"]
    assert best["gpu_hours_per_step"] == pytest.approx(hours)
    assert best["usd_per_million_tokens"] == pytest.approx(3.6 * hours / (4 * 128) * 1e6)
    written = yaml.safe_load(out.read_text())
    assert written["parallelism"] == best["parallelism"] and written["schedule"] == best["schedule"]
    assert all(written[key] == RAW[key] for key in ("model", "block", "source"))
    assert read_plan(written, "best").name == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "none"], "whole numbers from 1 up"),
        (["--devices", "7"], "no way to divide the model over 7 devices"),
        (["--memory", "80"], "a number and GiB"),
        (["--memory", "1MiB"], "candidates fits"),
        (["--reserve", "1"], "--reserve"),
        (["--price", "-1"], "--price"),
        (["--top", "0"], "--top"),
        (["--out", "best.txt"], ".yaml"),
        (["--gpu", "xeon_platinum_8480"], "a GPU"),
        (["--tensor", "1,2"], "--tensor"),
        (["--batches", "1"], "--batches"),
        (["--data-parallel", "2"], "--data-parallel"),
    ],
)
def test_bad_input_is_one_message(plan: Path, arguments: list[str], message: str, command: Command) -> None:
    assert message in command.refused(*search(plan, *arguments))


def test_a_plan_without_layers_is_refused(command: Command) -> None:
    assert "gnnperf shard" in command.refused(*search("dlrm_criteo"))


def test_a_plan_of_another_number_of_devices_is_no_baseline(plan: Path, command: Command) -> None:
    assert "as the file has it" not in command.document(*search(plan, devices="1"))["baselines"]
