from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from synthetic import prepared

from gnnperf.gnn.checkpoint import make_checkpoint
from gnnperf.gnn.data.prepare import opened
from gnnperf.gnn.data.runs import run_of
from gnnperf.gnn.finetune import start_of
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.models.message_passing import ModelConfig
from gnnperf.gnn.training.config import TrainConfig, TrainerConfig
from research.baselines.judge import fitted_record
from research.benchmarks import fine_tuning
from research.benchmarks._learned_jobs import AGAIN, data_config
from research.benchmarks._networks import AsItIs, FineTuned
from research.benchmarks.fine_tuning import JUDGED, ROWS, RUNS, apart, few_runs, print_tables
from research.evaluation.records import Origin

TEST = tuple(f"run{number:02}/{repeat}" for number in range(30) for repeat in (1, 2))


def runs(names: tuple[str, ...]) -> set[str]:
    return {run_of(name) for name in names}


def test_few_runs_are_disjoint_whole_and_nested() -> None:
    pool, judged = apart(TEST)
    assert sorted((*pool, *judged)) == sorted(TEST)
    result = {count: few_runs(pool, judged, count, 3, f"x-{count}") for count in RUNS}
    for count, split in result.items():
        parts = [runs(part) for part in (split.train, split.val, split.test)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == count + JUDGED
        assert len(parts[1]) == max(count // 4, 1)
        assert all(sorted(part) == sorted(n for n in TEST if run_of(n) in runs(part))
                   for part in (split.train, split.val, split.test))  # fmt: skip
    assert len({split.test for split in result.values()}) == 1
    learned = [runs(result[count].train) | runs(result[count].val) for count in RUNS]
    assert learned[0] < learned[1] < learned[2]
    other = few_runs(pool, judged, 2, 4, "x-2")
    assert other.test == result[2].test and other.train != result[2].train


def test_draws_stay_as_they_were_when_the_table_was_made() -> None:
    pool, judged = apart(TEST)
    assert judged[:4] == ("run23/1", "run23/2", "run06/1", "run06/2")
    assert few_runs(pool, judged, 2, 0, "x-2").train == ("run26/1", "run26/2")


def test_the_second_machine_is_requested_about_runs_that_no_one_trained_on() -> None:
    split, _ = opened(data_config(AGAIN))
    assert split.axis == AGAIN
    assert split.test and not runs(split.test) & (runs(split.train) | runs(split.val))


def test_rows_of_one_network_as_it_is_and_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy's labels are three times what the base says: training on goes there, staying does not."""
    config = TrainConfig(model=ModelConfig(hidden_channels=8, num_layers=1), trainer=TrainerConfig(40, False))
    data = prepared(tmp_path)
    start = start_of(make_checkpoint(TypedGNN(config.model, data.vocabulary), config.model, data, {}), "a test")
    further = prepared(tmp_path, earlier=start.earlier)
    requested = Origin("x-2", "test", "gnn", 0, 1.0, "", "", "", "")
    as_it_is = fitted_record(AsItIs(start, "s"), data, requested)
    trained = fitted_record(FineTuned(config, start, "s"), further, Origin(**{**vars(requested), "row": "fine-tuned"}))
    gmae = [fine_tuning._nodes([entry]) for entry in (as_it_is, trained)]
    assert gmae[1] < 0.9 * gmae[0]

    wide = Console(width=300, record=True)
    monkeypatch.setattr(fine_tuning, "Console", lambda width: wide)
    print_tables([as_it_is, trained])
    lines = wide.export_text().splitlines()
    first = next(line for line in lines if line.strip("│ ").startswith("x "))
    given = [entry.strip() for entry in first.strip("│").split("│")]
    assert given[:4] == ["x", "2", "1", "1"]
    assert given[4 + ROWS.index("gnn")] == f"{100 * gmae[0]:.1f}"
    assert given[4 + ROWS.index("fine-tuned")] == f"{100 * gmae[1]:.1f}"
    assert given[4 + ROWS.index("gnn-few")] == "-"
