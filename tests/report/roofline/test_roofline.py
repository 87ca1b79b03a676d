"""Axes and marks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from round_device import DEVICE

from gnnperf import cli
from gnnperf.hardware import load_device
from gnnperf.report import write_report
from gnnperf.report.roofline.chart import HEIGHT, WIDTH, Axis, Chart, decades, number_text
from gnnperf.report.roofline.points import MEASURED, PREDICTED, pictures_of
from tests.predict.answers import GEMM_1, toy_answer


def test_a_logarithmic_axis_has_decades() -> None:
    axis = Axis(0.1, 1000.0, "x")
    assert [axis.at(value) for value in (0.1, 10.0, 1000.0)] == pytest.approx([0.0, 0.5, 1.0])
    assert axis.ticks() == pytest.approx([0.1, 1.0, 10.0, 100.0, 1000.0])
    assert (axis.at(0.0), axis.at(1e9)) == (0.0, 1.0)  # outside: at its ends


def test_an_even_axis_has_round_ticks() -> None:
    assert Axis(0.0, 7.3, "x", False).ticks() == pytest.approx([0, 2, 4, 6])
    assert Axis(72.7, 76.4, "x", False).ticks() == pytest.approx([73, 74, 75, 76])
    assert Axis(0.0, 1.0, "x", False).at(0.25) == 0.25


def test_ends_are_decades_around_the_values() -> None:
    assert decades([0.3, 4e5]) == pytest.approx((0.1, 1e6))
    assert decades([10.0]) == pytest.approx((10.0, 100.0))


def test_numbers_have_prefixes() -> None:
    assert [number_text(v) for v in (0.51, 7.0, 1.5e12, 2e16)] == ["0.51", "7", "1.5 T", "20 P"]


def test_marks_lie_where_the_axes_say_and_names_are_escaped() -> None:
    chart = Chart(Axis(0.0, 1.0, "<x>", False), Axis(0.0, 1.0, "y", False))
    chart.dot(1.0, 1.0, "f0", "<b>")
    chart.line([(0.0, 0.0), (1.0, 0.0)], "peak")
    drawn = chart.svg('a "picture"')
    assert f'cx="{WIDTH - 16:.1f}" cy="14.0"' in drawn
    assert f'points="78.0,{HEIGHT - 46:.1f} {WIDTH - 16:.1f},{HEIGHT - 46:.1f}"' in drawn
    assert "&lt;b&gt;" in drawn
    assert "&lt;x&gt;" in drawn
    assert "<b>" not in drawn


CPU = replace(DEVICE, kind="cpu")  # sustained shares of 1: 1e12 FLOP/s, 1e12 bytes/s
OTHER = replace(CPU, name="other", flops_per_s={"float32": 2e12})


def _nodes() -> pd.DataFrame:
    """[5] gemm of 40 us at 100 FLOP/byte, one of 2 us at 0.5; an addition; one without bytes; a host's."""
    unknown = np.nan
    return pd.DataFrame(
        {
            "node_type": ["compute"] * 4 + ["host"],
            "family": ["gemm", "gemm", "elementwise", "gemm", None],
            "dtype": ["float32", None, "float32", "float32", None],
            "flops": [2e7, 1e6, 0.0, 1e6, unknown],
            "bytes": [2e5, 2e6, 4e6, unknown, unknown],
            "latency_us": [40.0, 2.0, 8.0, 1.0, 100.0],
            "measured_latency_us": [50.0, 4.0, unknown, 1.0, 100.0],
        }
    )


def test_a_family_is_a_point_and_its_share_is_reported_node_by_node() -> None:
    (picture,) = pictures_of(_nodes(), CPU, CPU)
    gemm, addition = picture.points[PREDICTED]
    assert (gemm.family, gemm.rate, gemm.num_nodes, gemm.time_us) == ("gemm", "float32", 2, 42.0)
    assert gemm.intensity == pytest.approx(2.1e7 / 2.2e6)
    assert gemm.flops_per_s == pytest.approx(2.1e7 / 42e-6)
    assert gemm.sustained_us == pytest.approx(20.0 + 2.0)  # one by FLOPs, one by bytes
    assert [gemm.share_of_sustained, gemm.share_of_peak] == pytest.approx([22 / 42, 22 / 42])
    assert gemm.bound == "compute"
    assert (addition.intensity, addition.bound) == (0.0, "memory")
    assert addition.bytes_per_s == pytest.approx(5e11)
    assert picture.num_left_out == {MEASURED: 2, PREDICTED: 1}


def test_measured_points_are_of_what_was_measured() -> None:
    (picture,) = pictures_of(_nodes(), CPU, CPU)
    (gemm,) = picture.points[MEASURED]
    assert (gemm.num_nodes, gemm.time_us) == (2, 54.0)


def test_measured_outside_is_a_device_of_its_own() -> None:
    predicted, measured = pictures_of(_nodes(), OTHER, CPU)
    assert (predicted.roofs.device, list(predicted.points)) == (OTHER, [PREDICTED])
    assert (measured.roofs.device, list(measured.points)) == (CPU, [MEASURED])
    assert predicted.points[PREDICTED][0].sustained_us == pytest.approx(10.0 + 2.0)


def test_a_plan_has_predicted_points_only() -> None:
    nodes = _nodes().assign(measured_latency_us=np.nan)
    assert [list(picture.points) for picture in pictures_of(nodes, CPU, CPU)] == [[PREDICTED]]
    assert [list(picture.points) for picture in pictures_of(nodes, CPU, None)] == [[PREDICTED]]


RUN = Path(__file__).resolve().parents[3] / "datasets/cpu-gloo/bert_l2_w128_s128_b8_x2_lo/1"
LAYER = ["sparsity-roofline", "--m", "64", "--n", "32", "--k", "64", "--hardware", "h100_sxm"]


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> str:
    """The toy's two gemms: 512 cubed in float32 on a V100, predicted in 100 and 240 us, measured in 100 and 120."""
    write_report(toy_answer({GEMM_1: 240.0}), tmp_path / "out")
    return str(tmp_path / "out")


def test_a_folder_is_drawn_measured_and_predicted(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["roofline", folder, "--out", str(tmp_path / "r.csv")]) == 0
    shown = capsys.readouterr().out
    assert "toy, step 0, mode analytic" in shown
    assert "peak 15.7 TFLOP/s" in shown
    table = pd.read_csv(tmp_path / "r.csv").set_index("latencies")
    assert list(table.index) == ["measured", "predicted"]
    assert set(table["device"]) == {"v100_sxm2_32gb"}
    flops, moved = 2 * 2 * 512**3, 2 * 3 * 4 * 512**2
    assert list(table["flops_per_byte"]) == pytest.approx([flops / moved] * 2)
    assert list(table["flops_per_s"]) == pytest.approx([flops / 220e-6, flops / 340e-6])
    assert list(table["share_of_peak_roof"]) == pytest.approx([flops / 15.7e12 / us * 1e6 for us in (220, 340)])
    assert set(table["bound"]) == {"compute"}


def test_the_page_is_one_file_with_a_picture(folder: str, tmp_path: Path) -> None:
    assert cli.main(["roofline", folder, "--out", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert page.count("<svg") == 1
    assert page.count("<circle") == 2
    assert "prefers-color-scheme: dark" in page
    assert "<script" not in page
    assert "://" not in page and "Content-Security-Policy" in page
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "r.html"]


def test_other_hardware_has_a_picture_of_its_own(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["roofline", folder, "--hardware", "a100_sxm_80gb"]) == 0
    assert "a100_sxm_80gb" in capsys.readouterr().out


def test_a_trace_is_predicted_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["roofline", str(RUN), "--step", "2"]) == 0
    shown = capsys.readouterr().out
    assert "step 2, mode hybrid" in shown
    rows = [line.split()[:3] for line in shown.splitlines() if line.startswith("gemm")]
    assert rows == [["gemm,", "float32", "measured"], ["gemm,", "float32", "predicted"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["roofline", "no/such"], "no such file or directory"),
        (["roofline", "{folder}", "--out", "r.png"], "suffix '.png'. Allowed: .html, .csv"),
        (["roofline", "{folder}", "--out", "no/such/r.csv"], "no such folder"),
        (["roofline", "{folder}", "--step", "1"], "--step: has no use for a prediction"),
        (["roofline", "{folder}", "--hardware", "h1000"], "no hardware named 'h1000'"),
        ([*LAYER, "--patterns", "4:8"], "--patterns: no pattern '4:8'. Allowed: unstructured, 2:4, blockN"),
        ([*LAYER, "--sparsities", "1.5"], "--sparsities: sparsity 1.5. Allowed: above 0, below 1"),
        ([*LAYER, "--dtype", "float12"], "--dtype: bad value 'float12'"),
        ([*LAYER, "--accuracy", "no.csv"], "no.csv: no such file"),
    ],
)
def test_bad_input_is_one_message(
    folder: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([word.format(folder=folder) for word in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_device_that_is_not_in_the_catalog_must_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report(toy_answer(hardware="mine"), tmp_path / "out")
    assert cli.main(["roofline", str(tmp_path / "out")]) == 2
    assert "the device 'mine' is not in the catalog. What to do: pass --hardware NAME" in capsys.readouterr().err


def test_a_folder_stands_on_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A device that no catalog has: its numbers are in prediction.json."""
    mine = replace(load_device("v100_sxm2_32gb"), name="mine", aliases=(), flops_per_s={"float32": 20e12})
    write_report(toy_answer(hardware="mine", device=mine, same_hardware=False), tmp_path / "out")
    assert cli.main(["roofline", str(tmp_path / "out"), "--out", str(tmp_path / "r.csv")]) == 0
    assert "peak 20 TFLOP/s" in capsys.readouterr().out
    assert list(pd.read_csv(tmp_path / "r.csv")["device"]) == ["mine", "v100_sxm2_32gb"]  # the latter by its name


@pytest.mark.parametrize(
    ("numbers", "message"),
    [("{}", "key 'name' is missing"), ("[1]", "[1] are no numbers of a device. What to do: predict again")],
)
def test_numbers_that_cannot_be_used_are_one_message(
    folder: str, numbers: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(folder) / "prediction.json"
    file.write_text(file.read_text().replace('"hardware_numbers": null', f'"hardware_numbers": {numbers}', 1))
    assert cli.main(["roofline", folder]) == 2
    error = capsys.readouterr().err
    assert "prediction.json, key 'hardware_numbers'" in error and message in error
    assert len(error.splitlines()) == 1


def test_accuracies_stand_with_speed_ups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text("pattern,sparsity,accuracy\ndense,0,76.5\nblock16,0.75,71\n2:4,0.5,76\nblock4,0.5,70\n")
    requested = [*LAYER, "--patterns", "2:4", "block16", "block48", "--sparsities", "0.5", "--accuracy", str(mine)]
    assert cli.main([*requested, "--out", str(tmp_path / "s.csv")]) == 0
    shown = capsys.readouterr().out
    assert "block48: 48 does not divide m, 64, and k, 64" in shown
    assert "accuracies of block4 are not used" in shown
    table = pd.read_csv(tmp_path / "s.csv")
    assert list(zip(table["pattern"], table["sparsity"], strict=True)) == [
        ("dense", 0.0), ("2:4", 0.5), ("block16", 0.5), ("block16", 0.75),
    ]  # fmt: skip
    assert list(table["accuracy"].fillna(-1)) == [76.5, 76.0, -1.0, 71.0]
    assert cli.main([*requested, "--out", str(tmp_path / "s.html")]) == 0
    assert (tmp_path / "s.html").read_text().count("<svg") == 2


def test_a_device_without_units_for_a_pattern_states_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*LAYER[:-1], "v100_sxm2_16gb"]) == 0
    assert "2:4: v100_sxm2_16gb has no units for it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("pattern,sparsity\n", "column 'accuracy' is missing"),
        ("pattern,sparsity,accuracy\n3:4,0.5,1\n", "line 2: no pattern '3:4'"),
        ("pattern,sparsity,accuracy\n2:4,0.6,1\n", "line 2: sparsity 0.6 of 2:4. Allowed: 0.5"),
        ("pattern,sparsity,accuracy\ndense,0,high\n", "line 2, accuracy: 'high' is no number"),
        ("pattern,sparsity,accuracy\ndense,0,1\ndense,0,2\n", "line 3: dense, 0 is there twice"),
    ],
)
def test_accuracies_that_make_no_sense_are_refused(
    tmp_path: Path, rows: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.csv").write_text(rows)
    assert cli.main([*LAYER, "--accuracy", str(tmp_path / "mine.csv")]) == 2
    assert message in capsys.readouterr().err
