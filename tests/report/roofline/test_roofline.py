"""Axes and marks."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from round_device import DEVICE

from gnnperf.hardware import load_device
from gnnperf.report import write_report
from gnnperf.report.roofline.chart import HEIGHT, WIDTH, Axis, Chart, decades, number_text
from gnnperf.report.roofline.points import MEASURED, PREDICTED, pictures_of
from tests.command import Command
from tests.predict.predictions import GEMM_1, toy_prediction


def test_a_logarithmic_axis_has_decades() -> None:
    axis = Axis(0.1, 1000.0, "x")
    assert [axis.at(value) for value in (0.1, 10.0, 1000.0)] == pytest.approx([0.0, 0.5, 1.0])
    assert axis.ticks() == pytest.approx([0.1, 1.0, 10.0, 100.0, 1000.0])
    assert (axis.at(0.0), axis.at(1e9)) == (0.0, 1.0)  # outside: at its ends


def test_ends_are_decades_around_the_values() -> None:
    assert decades([0.3, 4e5]) == pytest.approx((0.1, 1e6))
    assert decades([10.0]) == pytest.approx((10.0, 100.0))


def test_numbers_have_prefixes() -> None:
    assert [number_text(v) for v in (0.51, 7.0, 1.5e12, 2e16)] == ["0.51", "7", "1.5 T", "20 P"]


def test_marks_lie_where_the_axes_say_and_names_are_escaped() -> None:
    chart = Chart(Axis(1.0, 10.0, "<x>"), Axis(1.0, 10.0, "y"))
    chart.dot(10.0, 10.0, "f0", "<b>")
    chart.line([(1.0, 1.0), (10.0, 1.0)], "peak")
    drawn = chart.svg('a "picture"')
    assert f'cx="{WIDTH - 16:.1f}" cy="14.0"' in drawn
    assert f'points="78.0,{HEIGHT - 46:.1f} {WIDTH - 16:.1f},{HEIGHT - 46:.1f}"' in drawn
    assert "&lt;b&gt;" in drawn
    assert "&lt;x&gt;" in drawn
    assert "<b>" not in drawn


def test_labels_of_points_that_are_near_do_not_overlap() -> None:
    chart = Chart(Axis(1.0, 10.0, "x"), Axis(1.0, 10.0, "y"))
    for name in ("gemm", "gemm", "attention"):
        chart.words(2.0, 2.0, name)
    heights = sorted(top for _, _, top in chart.labels)
    assert heights[1] - heights[0] >= 14 and heights[2] - heights[1] >= 14


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
    (measured,) = picture.points[MEASURED]
    assert (measured.num_nodes, measured.time_us) == (2, 54.0)


def test_measured_outside_is_a_device_of_its_own() -> None:
    predicted, measured = pictures_of(_nodes(), OTHER, CPU)
    assert (predicted.roofs.device, list(predicted.points)) == (OTHER, [PREDICTED])
    assert (measured.roofs.device, list(measured.points)) == (CPU, [MEASURED])
    assert predicted.points[PREDICTED][0].sustained_us == pytest.approx(10.0 + 2.0)


def test_a_plan_has_predicted_points_only() -> None:
    nodes = _nodes().assign(measured_latency_us=np.nan)
    assert [list(picture.points) for picture in pictures_of(nodes, CPU, CPU)] == [[PREDICTED]]
    assert [list(picture.points) for picture in pictures_of(nodes, CPU, None)] == [[PREDICTED]]


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The toy's two gemms: 512 cubed in float32 on a V100, predicted in 100 and 240 us, measured in 100 and 120."""
    out = tmp_path_factory.mktemp("roofline") / "out"
    write_report(toy_prediction({GEMM_1: 240.0}), out)
    return str(out)


def test_a_folder_is_drawn_measured_and_predicted(folder: str, tmp_path: Path, command: Command) -> None:
    shown = command.shown("roofline", folder, "--out", tmp_path / "r.csv")
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


def test_the_page_is_one_file_with_a_picture(folder: str, tmp_path: Path, command: Command) -> None:
    command.shown("roofline", folder, "--out", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert page.count("<svg") == 1
    assert page.count("<circle") == 2
    assert "light-dark(" in page
    assert "<script" not in page
    assert "://" not in page and "Content-Security-Policy" in page
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.html"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["roofline", "no/such"], "prediction.json: cannot be read (No such file or directory)"),
        (["roofline", "{folder}", "--out", "r.png"], "suffix '.png'. Allowed: .html, .csv"),
        (["roofline", "{folder}", "--out", "no/such/r.csv"], "no such folder"),
    ],
)
def test_bad_input_is_one_message(folder: str, arguments: list[str], message: str, command: Command) -> None:
    error = command.refused(*(word.format(folder=folder) for word in arguments))
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_folder_stands_on_its_own(tmp_path: Path, command: Command) -> None:
    """A device that no catalog has: its numbers are in prediction.json."""
    mine = replace(load_device("v100_sxm2_32gb"), name="mine", aliases=(), flops_per_s={"float32": 20e12})
    write_report(toy_prediction(hardware="mine", device=mine, same_hardware=False), tmp_path / "out")
    assert "peak 20 TFLOP/s" in command.shown("roofline", tmp_path / "out", "--out", tmp_path / "r.csv")
    assert list(pd.read_csv(tmp_path / "r.csv")["device"]) == ["mine", "v100_sxm2_32gb"]  # the latter by its name


@pytest.mark.parametrize(
    ("numbers", "message"),
    [("{}", "name, kind, "), ("[1]", "[1] are no numbers of a device. What to do: predict again")],
)
def test_numbers_that_cannot_be_used_are_one_message(
    folder: str, numbers: str, message: str, tmp_path: Path, command: Command
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    file = Path(copy) / "prediction.json"
    file.write_text(file.read_text().replace('"hardware_numbers": null', f'"hardware_numbers": {numbers}', 1))
    error = command.refused("roofline", copy)
    assert "prediction.json, key 'hardware_numbers'" in error and message in error
    assert len(error.splitlines()) == 1
