"""A trace that memory cannot hold is imported in windows of some steps."""

from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.trace import Selection, read_run, split, windowed, windows
from tests.command import Command
from tests.trace import kineto_files as files

STEPS = 6


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "BLOCK_BYTES", 700)


def budget(path: Path, steps: float) -> float:
    """Memory for so many steps."""
    return windows.MEMORY_PER_BYTE * path.stat().st_size / STEPS * steps


@pytest.mark.parametrize("chosen", [None, range(6, 9)])
def test_windows_hold_their_steps_and_the_work_that_these_launch(tmp_path: Path, chosen: range | None) -> None:
    path = files.marked_steps(tmp_path / "rank_0.json", STEPS)
    (tmp_path / "windows").mkdir()
    result = split(path, tmp_path / "windows", budget(path, 2.5), chosen)
    assert [window.steps for window in result] == (
        [range(5, 7), range(7, 9), range(9, 11)] if chosen is None else [range(6, 8), range(8, 9)]
    )
    for window in result:
        (table,) = read_run(window.file, chosen=Selection(steps=chosen and window.steps)).tables
        kernels = table.events[table.events["name"] == "gemm"]
        assert len(kernels) == len(window.steps)
        assert (kernels["launch_event"] >= 0).all()
        assert (table.meta.rank, table.meta.world_size) == (0, 4)
        assert table.meta.devices[0].name == "Tesla V100-SXM2-32GB"


def test_packed_text_is_split_too(tmp_path: Path) -> None:
    path = files.marked_steps(tmp_path / "rank_0.json.gz", STEPS)
    (tmp_path / "windows").mkdir()
    names = [window.file.name for window in split(path, tmp_path / "windows", 3000)]
    assert len(names) > 1 and set(names) == {"rank_0.json.gz"}


def test_what_cannot_be_split_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = files.write(tmp_path / "rank_0.json", files.document([files.host("aten::mm", 0, 5)] * 50))
    path = files.marked_steps(tmp_path / "rank_1.json", STEPS)
    for file, most, message in (
        (plain, 1e9, "marks none of these steps"), (path, budget(path, 0.5), "has steps that take about"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            split(file, tmp_path, most)
    path.write_text(path.read_text()[:-30])
    with pytest.raises(InputError, match="cannot be split"):
        split(path, tmp_path, budget(path, 3))
    monkeypatch.setattr(windows, "MAX_TEXT_BYTES", 100)
    with pytest.raises(InputError, match=r"holds more than .*100 bytes"):
        split(path, tmp_path, 1e9)


def test_only_files_that_are_too_large_are_split(tmp_path: Path) -> None:
    path = files.marked_steps(tmp_path / "rank_0.json", STEPS)
    assert [windowed(path, budget(path, steps)) for steps in (STEPS + 1, STEPS - 1)] == [False, True]
    assert not windowed(tmp_path, 1)


def test_the_command_writes_a_folder_per_window(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = files.marked_steps(tmp_path / "rank_0.json", STEPS), tmp_path / "runs" / "out"
    words = ("import", path, "--out", out, "--memory-gib")
    assert "more than 0.29, which the process takes" in command.refused(*words, 0.02)
    monkeypatch.setattr("gnnperf.graph.import_cli.PROCESS_BYTES", 0)
    for _ in range(2):  # an earlier import is replaced
        assert "steps_8-10: 3 steps" in command.shown(*words, budget(path, 3.5) / 2**30)
    assert sorted(p.name for p in out.iterdir()) == ["steps_5-7", "steps_8-10"]
    (table,) = read_run(out / "steps_8-10").tables
    assert table.events["name"].tolist().count("gemm") == 3
    assert [p.name for p in out.parent.iterdir()] == ["out"] and len(list(tmp_path.iterdir())) == 2
