"""One side of a comparison: read back from a folder, or measured in a trace."""

import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gnnperf.core import InputError, StepTimeKind
from gnnperf.generate import StepWork
from gnnperf.predict import Throughput
from gnnperf.report import write_report
from gnnperf.report.compare.changes import OTHERS, REST, UNNAMED, Change, Comparison, compare, leading
from gnnperf.report.compare.side import Side, is_prediction, measured_side, read_prediction
from gnnperf.report.compare.text import Limits, bars, rate_lines, rendered
from gnnperf.report.page.changes import comparison_page, waterfall
from tests.command import Command
from tests.predict.predictions import GEMM_1, toy_prediction
from tests.toys import two_rank_graph


def test_folder_is_read_back(folders: tuple[str, str]) -> None:
    side = read_prediction(Path(folders[1]))
    assert (side.run, side.who, side.hardware) == ("toy", "analytic", "v100_sxm2_32gb")
    assert (side.step_time_us, side.step_time_kind) == (370.0, StepTimeKind.MAKESPAN)
    assert not side.is_lower_bound
    assert len(side.nodes) == 15  # the three hardware nodes are no work
    assert side.nodes["critical_us"].sum() == 370.0


def test_a_folder_without_a_prediction_is_a_trace(tmp_path: Path) -> None:
    assert not is_prediction(tmp_path)
    (tmp_path / "prediction.json").write_text("{}")
    assert is_prediction(tmp_path)
    assert not is_prediction(tmp_path / "prediction.json")


@pytest.mark.parametrize("text", ["[1]", "{", '{"format": "gnnperf.prediction", "format_version": 99}'])
def test_a_document_of_someone_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "prediction.json").write_text(text)
    with pytest.raises(InputError, match=r"prediction\.json"):
        read_prediction(tmp_path)


def test_values_that_cannot_be_and_nodes_of_an_earlier_version_are_refused(
    folders: tuple[str, str], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folders[0], tmp_path / "copy"))
    document, nodes = copy / "prediction.json", copy / "nodes.parquet"
    good = document.read_text()
    for changed in ({"step_time_us": None}, {"step_time_us": -1.0}, {"step_time_kind": "x"}):
        document.write_text(json.dumps({**json.loads(good), **changed}))
        with pytest.raises(InputError, match="cannot be understood"):
            read_prediction(copy)
    document.write_text(good)
    pd.read_parquet(nodes).drop(columns="critical_us").to_parquet(nodes)
    with pytest.raises(InputError, match=r"no column 'critical_us'.*predict again"):
        read_prediction(copy)
    nodes.unlink()
    with pytest.raises(InputError, match=r"nodes\.parquet: cannot be read"):
        read_prediction(copy)


def test_measured_step_has_the_measured_time_and_its_critical_path() -> None:
    side = measured_side(two_rank_graph(), "toy.json")
    assert (side.who, side.step_time_us, side.step_time_kind) == ("measured", 185.0, StepTimeKind.MAKESPAN)
    assert side.hardware == "v100_sxm2_32gb"  # as predictions call it
    by_type = side.nodes.groupby("node_type")["critical_us"].sum()
    assert by_type[by_type > 0].to_dict() == {"host": 10.0 + 5.0, "compute": 120.0, "collective": 50.0}
    assert side.nodes["critical_us"].sum() == 185.0


Row = tuple[str, str | None, str, float, float]  # node type, op, phase, latency, time on the critical path


def side(rows: list[Row], step_time_us: float | None = None, kind: StepTimeKind = StepTimeKind.MAKESPAN) -> Side:
    """A step of these nodes; by default it takes as long as its critical path."""
    nodes = pd.DataFrame(rows, columns=["node_type", "op_name", "phase", "latency_us", "critical_us"])
    time_us = float(nodes["critical_us"].sum()) if step_time_us is None else step_time_us
    return Side("out", "toy", "analytic", "v100", time_us, kind, False, nodes)


A: list[Row] = [
    ("compute", "aten::mm", "forward", 100.0, 100.0),
    ("compute", "aten::mm", "backward", 200.0, 0.0),
    ("collective", "all_reduce", "backward", 80.0, 80.0),
    ("host", None, "other", 20.0, 20.0),
]
B: list[Row] = [
    ("compute", "aten::mm", "forward", 60.0, 60.0),
    ("compute", "aten::mm", "backward", 300.0, 70.0),
    ("collective", "all_reduce", "backward", 80.0, 50.0),
    ("memory", "aten::copy_", "other", 5.0, 5.0),
]


def test_parts_by_hand() -> None:
    """A: 200 us, B: 185 us. mm 100 -> 130, all_reduce 80 -> 50, no op 20 -> 0, copy_ 0 -> 5."""
    result = compare(side(A), side(B))
    assert (result.change_us, result.change_share) == (-15.0, -0.075)
    assert result.changes["op"] == (
        Change("aten::mm", 100.0, 130.0, 300.0, 360.0, 2, 2),
        Change("all_reduce", 80.0, 50.0, 80.0, 80.0, 1, 1),
        Change(UNNAMED, 20.0, 0.0, 20.0, 0.0, 1, 0),
        Change("aten::copy_", 0.0, 5.0, 0.0, 5.0, 0, 1),
    )
    assert [(one.name, one.change_us) for one in result.changes["phase"]] == [
        ("backward", 40.0), ("forward", -40.0), ("other", -15.0),
    ]  # fmt: skip
    assert [one.name for one in result.changes["node type"]] == ["compute", "collective", "host", "memory"]


def test_what_the_path_does_not_pass_is_a_part() -> None:
    result = compare(side(A, 210.0), side(B))
    assert Change(REST, 10.0, 0.0) in result.changes["op"]
    assert all(sum(one.change_us for one in parts) == pytest.approx(-25.0) for parts in result.changes.values())


def test_nodes_without_a_latency_are_counted_and_add_nothing() -> None:
    missing: list[Row] = [("compute", "my::op", "forward", float("nan"), 0.0)]
    assert Change("my::op", 0.0, 0.0, 0.0, 0.0, 0, 1) in compare(side(A), side(A + missing)).changes["op"]


rows = st.lists(
    st.tuples(
        st.sampled_from(["host", "compute", "comm"]), st.sampled_from(["a", "b", "c", None]),
        st.sampled_from(["forward", "backward"]), st.floats(0, 1e6), st.floats(0, 1e6),
    ),
    max_size=6,
)  # fmt: skip


@given(rows, rows, st.floats(0, 1e6))
def test_parts_add_up_whatever_the_steps(a: list[Row], b: list[Row], more_us: float) -> None:
    one, other = side(a), side(b)
    other = replace(other, step_time_us=other.step_time_us + more_us)
    result = compare(one, other)
    for parts in result.changes.values():
        assert sum(part.change_us for part in parts) == pytest.approx(result.change_us, abs=1e-3)
        assert sum(part.a_critical_us for part in parts) == pytest.approx(one.step_time_us, abs=1e-3)
        shown = leading(parts, 2)
        assert len(shown) <= 3
        assert sum(part.change_us for part in shown) == pytest.approx(result.change_us, abs=1e-3)


@given(rows, rows)
def test_the_other_way_round_everything_changes_its_sign(a: list[Row], b: list[Row]) -> None:
    one, other = side(a), side(b)
    there, back = compare(one, other).changes, compare(other, one).changes
    for by, parts in there.items():
        assert {p.name: p.change_us for p in parts} == {p.name: -p.change_us for p in back[by]}


def test_the_smaller_parts_become_one() -> None:
    parts = compare(side(A), side(B)).changes["op"]
    assert leading(parts, 2)[2] == Change(f"{OTHERS}: 2", 20.0, 5.0, 20.0, 5.0, 1, 1)
    assert leading(parts, 4) == parts


def test_steps_of_two_kinds_are_not_compared() -> None:
    with pytest.raises(InputError, match=r"makespan, that of out a period.*--step"):
        compare(side(A), side(B, kind=StepTimeKind.PERIOD))


def test_limits_hold_up_to_their_value() -> None:
    result = compare(side(A), side(A, 210.0))  # 200 -> 210 us
    assert Limits().exceeded(result) == ()
    assert Limits(max_step_ms=0.21, max_regression=5.0).exceeded(result) == ()
    sentences = Limits(max_step_ms=0.2, max_regression=4.9).exceeded(result)
    assert sentences == (
        "step B takes 210 us, more than 0.2 ms (--max-step-ms)",
        "step B is 5.0 % longer than step A, more than 4.9 % (--max-regression)",
    )
    of_nothing = compare(side([]), side(A))
    assert np.isnan(of_nothing.change_share)
    assert Limits(max_regression=1000.0).exceeded(of_nothing) != ()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_no_limit_that_lets_everything_pass(value: float) -> None:
    with pytest.raises(InputError, match="--max-step-ms"):
        Limits(max_step_ms=value)
    with pytest.raises(InputError, match="--max-regression"):
        Limits(max_regression=value)


@pytest.fixture(name="folders", scope="module")
def _folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """185 us and 370 us, all of the difference in the gemm of rank 1."""
    out = tmp_path_factory.mktemp("compared")
    write_report(toy_prediction(), out / "a")
    write_report(toy_prediction({GEMM_1: 305.0}), out / "b")
    return str(out / "a"), str(out / "b")


def shown(result: Comparison) -> str:
    stream = io.StringIO()
    Console(file=stream, width=200).print(rendered(result, Limits()))
    return stream.getvalue()


def test_what_changed_is_printed(folders: tuple[str, str], command: Command) -> None:
    shown = command.shown("compare", *folders)
    assert "step makespan: 185 us -> 370 us, change +185 us (+100.0 %)" in shown
    for by in ("node type", "phase", "op"):
        assert f"by {by}: time on the critical path" in shown


def test_outside_a_limit_the_exit_code_is_4(folders: tuple[str, str], command: Command) -> None:
    command.ended(0, "compare", *folders, "--max-step-ms", 0.37, "--max-regression", 100)
    command.ended(4, "compare", *folders, "--max-step-ms", 0.36)
    command.ended(0, "compare", *reversed(folders), "--max-regression", 0)  # shorter
    out, err = command.ended(4, "compare", *folders, "--max-regression", 5, "--quiet")
    assert out == ""
    assert err == "gnnperf: step B is 100.0 % longer than step A, more than 5 % (--max-regression)\n"


def test_json_holds_every_part(folders: tuple[str, str], tmp_path: Path, command: Command) -> None:
    path = tmp_path / "deep" / "c.json"
    command.shown("compare", *folders, "--json", path, "--quiet", "--max-step-ms", 1)
    given = json.loads(path.read_text())
    assert (given["format"], given["change_us"], given["change_share"]) == ("gnnperf.comparison", 185.0, 1.0)
    assert given["by_op"][0] == {
        "name": "aten::mm", "a_critical_us": 130.0, "b_critical_us": 315.0, "change_us": 185.0,
        "a_all_ranks_us": 270.0, "b_all_ranks_us": 455.0, "a_num_nodes": 8, "b_num_nodes": 8,
    }  # fmt: skip
    assert sum(part["change_us"] for part in given["by_phase"]) == 185.0
    assert (given["max_step_ms"], given["max_regression_percent"], given["exceeded"]) == (1.0, None, [])
    assert json.loads(command.shown("compare", *folders, "--json", "-"))["change_us"] == 185.0


def test_page_is_one_file_with_a_waterfall_each(folders: tuple[str, str], tmp_path: Path, command: Command) -> None:
    command.shown("compare", *folders, "--html", tmp_path / "c.html", "--quiet")
    page = (tmp_path / "c.html").read_text()
    assert page.count("<table") == 3
    assert "step makespan: 185 us -&gt; 370 us" in page
    assert "<script" not in page and "://" not in page


def _bars(changes: tuple[Change, ...], result: Comparison) -> list[tuple[float, float]]:
    """(begin, width) of each bar in percent of its column, steps A and B included."""
    drawn = re.findall(r'style="(?:margin-left:([\d.]+)%;)?width:([\d.]+)%', waterfall("op", changes, result))
    return [(float(begin or 0), float(width)) for begin, width in drawn]


def test_waterfall_begins_at_a_and_ends_at_b(folders: tuple[str, str]) -> None:
    result = compare(*map(read_prediction, map(Path, folders)))
    first, change, *_, last = _bars(result.changes["op"], result)
    assert (first, change, last) == ((0.0, 50.0), (50.0, 50.0), (0.0, 100.0))


def test_a_small_change_is_drawn_without_what_stays(folders: tuple[str, str]) -> None:
    """370 -> 380 us: 10 us of change and 10 us of what stays."""
    result = compare(*map(read_prediction, map(Path, folders)))
    a, b = (replace(result.b, step_time_us=us) for us in (370.0, 380.0))
    result = replace(result, a=a, b=b)
    changes = (replace(result.changes["op"][0], a_critical_us=0.0, b_critical_us=10.0),)
    assert _bars(changes, result) == [(0.0, 50.0), (50.0, 50.0), (0.0, 100.0)]
    assert "Bars begin at 360 us." in waterfall("op", changes, result)


def test_bars_begin_where_the_one_before_ended() -> None:
    """100 -> 148 -> 132: 48 us are 24 characters."""
    assert bars([48.0, -16.0], 100.0) == ["█" * 24, " " * 16 + "█" * 8]
    assert bars([48.0, 0.0], 100.0) == ["█" * 24, " " * 23 + "▏"]
    assert bars([0.0], 100.0) == ["▏"]
    assert bars([], 100.0) == []


def test_predicted_with_measured(folders: tuple[str, str]) -> None:
    result = compare(read_prediction(Path(folders[1])), measured_side(two_rank_graph(), "toy.json"))
    assert result.change_us == -185.0
    assert "B: toy (toy, measured, v100_sxm2_32gb)" in shown(result)
    assert "warning" not in shown(result)


def test_other_hardware_and_what_is_left_out_are_stated(folders: tuple[str, str]) -> None:
    side = read_prediction(Path(folders[0]))
    text = shown(compare(replace(side, is_lower_bound=True), replace(side, hardware="h100_sxm")))
    assert "step makespan: at least 185 us -> 185 us" in text
    assert "warning: Step A leaves out work that is not covered: it is a lower bound." in text
    assert "warning: A is on v100_sxm2_32gb, B on h100_sxm hardware." in text


@pytest.mark.parametrize(
    ("evidence", "warned"), [(("none", "trace"), True), (("trace", "trace"), False), (("", "trace"), False)]
)
def test_different_evidence_is_a_warning(folders: tuple[str, str], evidence: tuple[str, str], warned: bool) -> None:
    sides = (replace(read_prediction(Path(f)), evidence=e) for f, e in zip(folders, evidence, strict=True))
    assert ("evidence=none in A and evidence=trace in B" in shown(compare(*sides))) is warned


def test_evidence_is_read_from_the_document(folders: tuple[str, str], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folders[0], tmp_path / "copy"))
    document = copy / "prediction.json"
    content = json.loads(document.read_text())
    document.write_text(json.dumps({**content, "provenance": {**content["provenance"], "evidence": "trace"}}))
    assert read_prediction(copy).evidence == "trace"
    content["provenance"].pop("evidence", None)
    document.write_text(json.dumps(content))
    assert read_prediction(copy).evidence == ""


def test_names_are_neither_markup_nor_html(folders: tuple[str, str]) -> None:
    side = read_prediction(Path(folders[0]))
    side.nodes["op_name"] = "<script>[bold]x"
    result = compare(side, side)
    assert "<script>[bold]x" in shown(result)
    assert "<script>[bold]" not in comparison_page(result)


def test_bad_input_is_one_message(tmp_path: Path, command: Command) -> None:
    assert "no such file or directory" in command.refused("compare", tmp_path / "no", tmp_path / "no")


def test_throughput_of_both_sides_is_compared_and_missing_rates_are_left_out() -> None:
    side = measured_side(two_rank_graph(), "a")
    a = replace(side, rates={"tokens_per_s": 1000.0, "mfu": 0.4, "samples_per_s": 5.0})
    b = replace(side, rates={"tokens_per_s": 1500.0, "mfu": 0.6})
    assert rate_lines(compare(a, b)) == ("tokens/s: 1,000 -> 1,500 (+50.0 %)", "MFU (%): 40 -> 60 (+50.0 %)")
    assert rate_lines(compare(a, side)) == ()


def test_throughput_of_a_prediction_is_read_back(tmp_path: Path) -> None:
    rates = Throughput(185.0, 2, StepWork(samples=3.7))
    write_report(replace(toy_prediction(), throughput=rates), tmp_path / "out")
    assert read_prediction(tmp_path / "out").rates == pytest.approx(
        {"samples_per_s": 20000.0, "samples_per_s_per_gpu": 10000.0, "gpu_hours_per_step": 185.0 * 2 / 3600e6}
    )
