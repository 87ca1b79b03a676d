"""`gnnperf search TRACE`: more replicas and other batches, what fits, what is refused."""

import json
from typing import Any

import pytest

from tests.command import Command, printed

TRACE = "datasets/cpu-gloo/gpt_l1_w128_s64_b8_x2_lo/1"


def search(*more: str, devices: str = "8", batches: str = "1") -> tuple[str, ...]:
    return ("search", TRACE, "--devices", devices, "--batches", batches, *more)


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """Of two and eight ranks, with the batch as recorded and twice as large."""
    return dict(json.loads(printed(*search("--json", "--price", "2", devices="2,8", batches="1,2"))))


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


def test_a_table_says_what_does_not_fit(result: dict[str, Any], command: Command) -> None:
    small, _, _, large = sorted(row["peak_bytes"] for row in result["settings"])
    limit = f"{(small + large) / 2 / 2**20:.3f}MiB"
    shown = command.shown(*search("--memory", limit, "--reserve", "0", "--by", "cost", batches="1,2"))
    assert "2 settings, of which 1 need more memory" in shown and shown.count("too large") == 1
    assert "from 2 recorded ranks" in shown and "taken for granted" in shown
    assert "no setting fits" in command.refused(*search("--memory", "1MiB"))


def test_layers_over_tensor_parallel_ranks(command: Command) -> None:
    shown = command.document(*search("--tensor", "2,3", devices="4"))
    (row,) = shown["settings"]
    assert (row["devices"], row["tensor"], row["peak_bytes"]) == (4, 2, None)
    assert row["samples_per_s"] == pytest.approx(2 * 8 / row["step_us"] * 1e6)  # of two groups of two ranks
    assert list(shown["refused"]) == ["4 devices, tensor 3, batch x 1"]


def test_what_cannot_be_predicted_is_named(command: Command) -> None:
    assert "not predicted: 8 devices, batch x 0.3" in command.shown(*search(batches="1,0.3"))
    for batches, more, message in (("none", (), "numbers above 0"), ("1", ("--out", "best.yaml"), "no plan to write"),
                                   ("0.3", (), "batch")):  # fmt: skip
        assert message in command.refused(*search(*more, batches=batches))
