"""`gnnperf shard`: a ranking, JSON, a plan to go on with, one message for bad input."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from gnnperf.generate.recommendation.read import recommendation_from
from gnnperf.shard import placement_search, shard_result
from tests.command import Command, printed

RAW: dict[str, Any] = {
    "name": "mine",
    "model": {
        "tables": [
            {"name": "users", "rows": 400_000, "dim": 32, "pooling": 2},
            {"name": "clicks", "rows": 50_000, "dim": 32, "pooling": 20, "skew": 3},
            {"name": "small", "count": 4, "rows": 900, "dim": 32},
        ],
        "bottom": [64, 32],
        "top": [64, 1],
        "optimizer": "rowwise_adagrad",
    },
    "batch": 8192,
    "ranks": 4,
    "placement": {"users": 0, "clicks": 0, "small_0": 1, "small_1": 1, "small_2": 2, "small_3": 3},
    "source": "a test",
}


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    """Searches that look at few placements."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement_search, "Effort", partial(placement_search.Effort, requested=600, judged=2))
        patch.setattr(shard_result, "NUM_RANDOM", 3)
        yield


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(RAW))
    return path


def shard(tables: Path | str, *more: str, devices: int = 4) -> list[str]:
    return ["shard", str(tables), "--devices", str(devices), "--hardware", "a100_sxm_80gb", *more]


def test_a_ranking_for_a_reader(tables: Path, command: Command) -> None:
    shown = command.shown(*shard(tables, "--top", "2"))
    assert "mine: 6 tables, batch 8,192, on 4 x a100_sxm_80gb (cluster dgx_a100)" in shown
    for name in ("greedy by size", "greedy by lookups", "greedy by predicted time", "median of 3 random",
                 "as the file has it"):  # fmt: skip
        assert name in shown
    assert "along its critical path" in shown and "\n  users: " in shown
    assert [line[:2] for line in shown.splitlines()].count(" 3") == 0


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """JSON of one search, and the plan that it wrote."""
    folder = tmp_path_factory.mktemp("searched")
    (folder / "mine.yaml").write_text(yaml.safe_dump(RAW))
    words = shard(folder / "mine.yaml", "--json", "--seed", "3", "--out", str(folder / "best.yaml"))
    return printed(*words), folder / "best.yaml"


def test_json_has_everything_and_is_the_same_twice(searched: tuple[str, Path], tables: Path, command: Command) -> None:
    first, _ = searched
    assert command.shown(*shard(tables, "--json", "--seed", "3")) == first
    result = json.loads(first)
    steps = [each["step_us"] for each in result["placements"]]
    assert steps == sorted(steps) and len(steps) == 3
    assert steps[0] <= min(result["compared_step_us"].values())
    best = result["placements"][0]
    assert len(best["ranks"]) == 4 and set(best["placement"]) == {"users", "clicks", *(f"small_{i}" for i in range(4))}
    assert sum(best["tables_by_split"].values()) == 6


def test_the_best_placement_is_a_plan(searched: tuple[str, Path], command: Command) -> None:
    shown, out = searched
    written = yaml.safe_load(out.read_text())
    best = json.loads(shown)["placements"][0]
    assert written["placement"] == best["placement"] and written["ranks"] == 4 and written["source"] == "a test"
    assert recommendation_from(written, "best").name == "mine"
    again = command.document(*shard(out))  # it may be requested again
    assert again["compared_step_us"]["as the file has it"] == best["step_us"]


def test_one_device_has_no_placement_of_other_ranks_to_compare_with(tables: Path, command: Command) -> None:
    shown = command.shown(*shard(tables, devices=1))
    assert "on 1 x a100_sxm_80gb" in shown and "as the file has it" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "3"], "3 ranks do not divide the batch, 8192"),
        (["--devices", "0"], "--devices: bad value 0"),
        (["--hardware", "a100"], "no hardware named 'a100'; did you mean"),
        (["--hardware", "cpu_generic"], "a GPU: batched lookups"),
        (["--cluster", "dgx"], "no cluster named 'dgx'"),
        (["--top", "0"], "--top: bad value 0"),
        (["--reserve", "1.5"], "reserve: bad value 1.5"),
        (["--reserve", "0.9999"], "take 0.0 GiB per device"),
        (["--out", "best.json"], "suffix '.json'"),
        (["--out", "no/such/best.yaml"], "no such folder"),
    ],
)
def test_bad_options_are_one_message(arguments: list[str], message: str, tables: Path, command: Command) -> None:
    error = command.refused(*shard(tables, *arguments))
    assert message in error and error.count("\n") == 1


def test_bad_files_are_one_message(tmp_path: Path, command: Command) -> None:
    (tmp_path / "odd.yaml").write_text(yaml.safe_dump({**RAW, "batches": 3}))
    for file, message in ((tmp_path / "none.yaml", "cannot be read"), ("gpt2_345m", "has no model.tables"),
                          (tmp_path / "odd.yaml", "did you mean 'batch'?")):  # fmt: skip
        assert message in command.refused(*shard(file))
