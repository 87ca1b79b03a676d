"""Some ranks and steps of a run: what is read, and that the rest is not decoded."""

from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.graph import build_graph
from gnnperf.trace import kineto, read_run, selection
from gnnperf.trace.selection import step_numbers
from gnnperf.trace.storage import write_run
from tests.command import Command
from tests.trace import kineto_files as files


def test_steps_come_with_the_device_work_that_they_launch(tmp_path: Path) -> None:
    path = files.marked_steps(tmp_path / "rank_0.json")
    (table,) = read_run(path, chosen=selection(steps="6:8")).tables
    assert step_numbers(table).tolist() == [6, 7]
    assert table.events["name"].tolist().count("gemm") == 2
    assert (table.events.loc[table.events["name"] == "gemm", "launch_event"] >= 0).all()
    assert table.events["start_ns"].iloc[0] == 0 and table.meta.base_time_ns % 10**6 == 0


def test_events_of_other_steps_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    whole = kineto.Reader._events

    def counted(self: kineto.Reader, text: bytes) -> list[object]:
        events = whole(self, text)
        decoded.append(len(events))
        return events

    monkeypatch.setattr(kineto.Reader, "_events", counted)
    read_run(files.marked_steps(tmp_path / "rank_0.json"), chosen=selection(steps="6:8"))
    assert sum(decoded) == 1 + 2 * 4 + 1  # what stands for none, two steps, and work that step 5 launched


def test_labels_are_those_of_the_whole_trace(tmp_path: Path) -> None:
    path = files.marked_steps(tmp_path / "rank_0.json")
    whole, some = (build_graph(read_run(path, chosen=selection(steps=steps))) for steps in (None, "6:9"))
    assert [(s.name, s.makespan_us) for s in some.steps[:2]] == [(s.name, s.makespan_us) for s in whole.steps[1:3]]
    assert some.steps[1].period_us == whole.steps[2].period_us


def test_ranks_of_files_and_of_saved_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(4):
        files.marked_steps(tmp_path / "traces" / f"rank_{rank}.json", rank=rank)
    (tmp_path / "traces" / "rank_3.json").write_text((tmp_path / "traces" / "rank_3.json").read_text()[:-9])  # broken
    run = read_run(tmp_path / "traces", chosen=selection("0,2"))
    assert [table.meta.rank for table in run.tables] == [0, 2]
    write_run(run, tmp_path / "saved")
    assert [table.meta.rank for table in read_run(tmp_path / "saved", chosen=selection("1-2")).tables] == [2]
    with pytest.raises(InputError, match="holds none of these ranks"):
        read_run(tmp_path / "saved", chosen=selection(3))
    with pytest.raises(InputError, match=r"holds none of these ranks. Allowed: rank 0, 1, 2"):
        (tmp_path / "traces" / "rank_3.json").unlink()
        read_run(tmp_path / "traces", chosen=selection(7))


def test_a_step_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no step 40 to 49\. .*5, 6, 7, 8, 9, 10"):
        read_run(files.marked_steps(tmp_path / "rank_0.json"), chosen=selection(steps="40:50"))


@pytest.mark.parametrize(
    ("ranks", "steps"), [("", ""), ("a", ":"), ("1-", "a"), ("-1", "1-2"), ("1;2", "3:6:1"), ("", "5:2")]
)
def test_ranks_and_steps_that_are_none_are_refused(ranks: str, steps: str) -> None:
    with pytest.raises(InputError, match=r"ranks is .* such as 0-7,12"):
        selection(ranks)
    with pytest.raises(InputError, match=r"steps is .* such as 3:6"):
        selection(steps=steps)


def test_the_commands_take_them(tmp_path: Path, command: Command) -> None:
    path = files.marked_steps(tmp_path / "rank_0.json")
    assert "2 steps" in command.shown("import", path, "--steps", "6:8", "--out", tmp_path / "some")
    document = command.document("predict", path, "--trace-steps", "6:8", "--ranks", 0, "--out", tmp_path / "out")
    assert document["step_name"] in ("ProfilerStep#6", "ProfilerStep#7")
