"""`gnnperf search` of a plan and of a trace: a table, JSON, a plan to go on with, one message for bad input."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gnnperf.generate import read_plan
from tests.command import Command, printed

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


TRACE = "datasets/cpu-gloo/gpt_l1_w128_s64_b8_x2_lo/1"


def of_trace(*more: str, devices: str = "8", batches: str = "1") -> tuple[str, ...]:
    return ("search", TRACE, "--devices", devices, "--batches", batches, *more)


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """Of two and eight ranks, with the batch as recorded and twice as large."""
    return dict(json.loads(printed(*of_trace("--json", "--price", "2", devices="2,8", batches="1,2"))))


def test_settings_by_the_time_of_a_sample(result: dict[str, Any]) -> None:
    rows = {(row["devices"], row["batch_factor"]): row for row in result["settings"]}
    assert set(rows) == {(n, b) for n in (2, 8) for b in (1.0, 2.0)}
    times = [row["sample_us"] for row in result["settings"]]
    assert times == sorted(times)
    same, twice, eight = rows[2, 1.0], rows[2, 2.0], rows[8, 1.0]
    assert same["step_us"] == result["recorded_step_us"] and same["speed"] == pytest.approx(1.0)
    assert twice["speed"] == pytest.approx(2 * same["step_us"] / twice["step_us"])
    assert twice["samples_per_s"] == pytest.approx(twice["speed"] * same["samples_per_s"])
    hours_of_a_million = eight["gpu_hours_per_step"] / (eight["samples_per_s"] * eight["step_us"])
    assert eight["usd_per_million_samples"] == pytest.approx(2 * hours_of_a_million * 1e12)
    assert same["on_front"] and twice["peak_bytes"] > same["peak_bytes"] == eight["peak_bytes"]


def test_a_table_names_what_does_not_fit(result: dict[str, Any], command: Command) -> None:
    small, _, _, large = sorted(row["peak_bytes"] for row in result["settings"])
    limit = f"{(small + large) / 2 / 2**20:.3f}MiB"
    shown = command.shown(*of_trace("--memory", limit, "--reserve", "0", "--by", "cost", batches="1,2"))
    assert "2 settings, of which 1 need more memory" in shown and shown.count("too large") == 1
    assert "from 2 recorded ranks" in shown and "taken for granted" in shown
    assert "no setting fits" in command.refused(*of_trace("--memory", "1MiB"))


def test_layers_over_tensor_parallel_ranks(command: Command) -> None:
    shown = command.document(*of_trace("--tensor", "2,3", devices="4"))
    (row,) = shown["settings"]
    assert (row["devices"], row["tensor"], row["peak_bytes"]) == (4, 2, None)
    assert row["samples_per_s"] == pytest.approx(2 * 8 / row["step_us"] * 1e6)  # of two groups of two ranks
    assert list(shown["refused"]) == ["4 devices, tensor 3, batch x 1"]


def test_what_cannot_be_predicted_is_named(command: Command) -> None:
    assert "not predicted: 8 devices, batch x 0.3" in command.shown(*of_trace(batches="1,0.3"))
    for batches, more, message in (("none", (), "numbers above 0"), ("1", ("--out", "best.yaml"), "no plan to write"),
                                   ("0.3", (), "batch")):  # fmt: skip
        assert message in command.refused(*of_trace(*more, batches=batches))
