"""`gnnperf compare A B` from the command line: what is printed, written and returned."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from gnnperf import cli
from gnnperf.report import write_report
from gnnperf.report.compare.changes import compare
from gnnperf.report.compare.page import comparison_page, waterfall
from gnnperf.report.compare.side import measured_side, read_prediction
from gnnperf.report.compare.text import Limits, bars, rendered
from tests.predict.answers import GEMM_1, toy_answer
from tests.toys import two_rank_graph


@pytest.fixture(name="folders")
def _folders(tmp_path: Path) -> tuple[str, str]:
    """185 us and 370 us, all of the difference in the gemm of rank 1."""
    write_report(toy_answer(), tmp_path / "a")
    write_report(toy_answer({GEMM_1: 305.0}), tmp_path / "b")
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_what_changed_is_printed(folders: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", *folders]) == 0
    shown = capsys.readouterr().out
    assert "step makespan: 185 us -> 370 us, change +185 us (+100.0 %)" in shown
    for by in ("node type", "phase", "op"):
        assert f"by {by}: time on the critical path" in shown


def test_outside_a_limit_the_exit_code_is_4(folders: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", *folders, "--max-step-ms", "0.37", "--max-regression", "100"]) == 0
    assert cli.main(["compare", *folders, "--max-step-ms", "0.36"]) == 4
    assert cli.main(["compare", *reversed(folders), "--max-regression", "0"]) == 0  # shorter
    capsys.readouterr()
    assert cli.main(["compare", *folders, "--max-regression", "5", "--quiet"]) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "gnnperf: step B is 100.0 % longer than step A, more than 5 % (--max-regression)\n"


def test_json_holds_every_part(folders: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deep" / "c.json"
    assert cli.main(["compare", *folders, "--json", str(path), "--quiet", "--max-step-ms", "1"]) == 0
    given = json.loads(path.read_text())
    assert (given["format"], given["change_us"], given["change_share"]) == ("gnnperf.comparison", 185.0, 1.0)
    assert given["by_op"][0] == {
        "name": "aten::mm", "a_critical_us": 130.0, "b_critical_us": 315.0, "change_us": 185.0,
        "a_all_ranks_us": 270.0, "b_all_ranks_us": 455.0, "a_num_nodes": 8, "b_num_nodes": 8,
    }  # fmt: skip
    assert sum(part["change_us"] for part in given["by_phase"]) == 185.0
    assert (given["max_step_ms"], given["max_regression_percent"], given["exceeded"]) == (1.0, None, [])
    capsys.readouterr()
    assert cli.main(["compare", *folders, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["change_us"] == 185.0


def test_page_is_one_file_with_a_waterfall_each(folders: tuple[str, str], tmp_path: Path) -> None:
    assert cli.main(["compare", *folders, "--html", str(tmp_path / "c.html"), "--quiet"]) == 0
    page = (tmp_path / "c.html").read_text()
    assert page.count('<div id="figure') == 3
    assert "step makespan: 185 us -&gt; 370 us" in page
    assert 'src="http' not in page


def test_waterfall_begins_at_a_and_ends_at_b(folders: tuple[str, str]) -> None:
    result = compare(*map(read_prediction, map(Path, folders)))
    drawn = waterfall("op", result.changes["op"], result).data[0]
    assert (drawn.y[0], drawn.y[-1], drawn.x[0], drawn.x[-1]) == ("step A", "step B", 0.185, 0.37)
    assert sum(drawn.x[:-1]) == pytest.approx(0.37)
    assert set(drawn.measure[1:-1]) == {"relative"}


def test_a_small_change_is_drawn_without_what_stays(folders: tuple[str, str]) -> None:
    """370 -> 380 us: 10 us of change, 10 us of what stays, and space for words; doubled, from 0."""
    result = compare(*map(read_prediction, map(Path, folders)))
    axis = waterfall("op", result.changes["op"], result).layout.xaxis
    assert (axis.range[0], axis.title.text) == (0.0, "ms")
    a, b = (replace(result.b, step_time_us=us) for us in (370.0, 380.0))
    axis = waterfall(
        "op", (replace(result.changes["op"][0], a_us=0.0, b_us=10.0),), replace(result, a=a, b=b)
    ).layout.xaxis
    assert (axis.range[0], axis.title.text) == (0.36, "ms, not from 0")
    assert 0.38 < axis.range[1] < 0.39


def test_bars_begin_where_the_one_before_ended() -> None:
    """100 -> 148 -> 132: 48 us are 24 characters."""
    assert bars([48.0, -16.0], 100.0) == ["█" * 24, " " * 16 + "█" * 8]
    assert bars([48.0, 0.0], 100.0) == ["█" * 24, " " * 23 + "▏"]
    assert bars([0.0], 100.0) == ["▏"]
    assert bars([], 100.0) == []


def test_predicted_with_measured(folders: tuple[str, str]) -> None:
    result = compare(read_prediction(Path(folders[1])), measured_side(two_rank_graph(), "toy.json"))
    assert result.change_us == -185.0
    stream = io.StringIO()
    Console(file=stream, width=140).print(rendered(result, Limits()))
    assert "B: toy (toy, measured, v100_sxm2_32gb)" in stream.getvalue()
    assert "warning" not in stream.getvalue()


def test_other_hardware_and_what_is_left_out_are_stated(folders: tuple[str, str]) -> None:
    side = read_prediction(Path(folders[0]))
    result = compare(replace(side, is_lower_bound=True), replace(side, hardware="h100_sxm"))
    stream = io.StringIO()
    Console(file=stream, width=140).print(rendered(result, Limits()))
    assert "step makespan: at least 185 us -> 185 us" in stream.getvalue()
    assert "warning: Step A leaves out work that is not covered: it is a lower bound." in stream.getvalue()
    assert "warning: A is on v100_sxm2_32gb, B on h100_sxm hardware." in stream.getvalue()


@pytest.mark.parametrize(
    ("evidence", "warned"), [(("none", "trace"), True), (("trace", "trace"), False), (("", "trace"), False)]
)
def test_different_evidence_is_a_warning(folders: tuple[str, str], evidence: tuple[str, str], warned: bool) -> None:
    sides = (replace(read_prediction(Path(f)), evidence=e) for f, e in zip(folders, evidence, strict=True))
    stream = io.StringIO()
    Console(file=stream, width=200).print(rendered(compare(*sides), Limits()))
    assert ("evidence=none in A and evidence=trace in B" in stream.getvalue()) is warned


def test_evidence_is_read_from_the_document(folders: tuple[str, str]) -> None:
    document = Path(folders[0]) / "prediction.json"
    content = json.loads(document.read_text())
    document.write_text(json.dumps({**content, "provenance": {**content["provenance"], "evidence": "trace"}}))
    assert read_prediction(Path(folders[0])).evidence == "trace"
    content["provenance"].pop("evidence", None)
    document.write_text(json.dumps(content))
    assert read_prediction(Path(folders[0])).evidence == ""


def test_names_are_neither_markup_nor_html(folders: tuple[str, str]) -> None:
    side = read_prediction(Path(folders[0]))
    side.nodes["op_name"] = "<script>[bold]x"
    result = compare(side, side)
    stream = io.StringIO()
    Console(file=stream, width=140).print(rendered(result, Limits()))
    assert "<script>[bold]x" in stream.getvalue()
    assert "<script>[bold]" not in comparison_page(result)


def test_bad_input_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", str(tmp_path / "no"), str(tmp_path / "no")]) == 2
    assert "no such file or directory" in capsys.readouterr().err
