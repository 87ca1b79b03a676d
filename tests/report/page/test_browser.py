"""report.html in a headless Chromium; skipped, with a word, where there is none."""

import json
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from gnnperf import cli
from gnnperf.predict import Request, predict
from gnnperf.report import write_report
from tests.chromium import Page, chromium
from tests.predict.predictions import GEMM_1, toy_prediction
from tests.report.page.pages import DRAWN

PROGRAM = chromium()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on the PATH (Debian: apt install chromium)")
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
OPENS_S = 3.0
# Colors of the canvas that are not the background's, and how many pixels have them.
PIXELS = """(() => {
  const canvas = document.getElementById("timeline-canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), seen = {};
  for (let i = 0; i < data.length; i += 4) {
    const color = `${data[i]},${data[i + 1]},${data[i + 2]}`;
    seen[color] = (seen[color] ?? 0) + 1;
  }
  return seen;
})()"""
TRACES = (
    "AMD-AGI+TraceLens/tests/traces/h100/Falconsai_nsfw_image_detection__1016002.json.gz",
    "AMD-AGI+TraceLens/tests/traces/h100/gaunernst_bert-small-uncased__1016001.json.gz",
    "AMD-AGI+TraceLens/tests/traces/mi210/gpu_only_trace/gpu_only_trace.json.gz",
    "AMD-AGI+TraceLens/tests/traces/mi300/Falconsai_nsfw_image_detection__1016002.json.gz",
    "HazyResearch+zoology/trace.json.gz",
    "NVIDIA+Megatron-LM/tp2/result",
    "facebookresearch+HolisticTraceAnalysis/tests/data/critical_path/end_to_end/simple_add/input/trace.json.gz",
    "facebookresearch+HolisticTraceAnalysis/tests/data/nccl_parser_config/nccl_data.json.gz",
    "pytorch+ao/torchao/prototype/server/amg_example/amg_example_trace.json.gz",
    "pytorch+torchrec/examples/golden_training/log/resnet18",
)
AXE = resources.files("axe_core_python").joinpath("axe.min.js")  # https://github.com/dequelabs/axe-core
SERIOUS = """axe.run({ resultTypes: ["violations"] }).then((all) => all.violations
  .filter((rule) => ["serious", "critical"].includes(rule.impact))
  .map((rule) => `${rule.id}: ${rule.nodes[0].html}`))"""
PAIRED = ("raised", "text", "dim", "accent", "warn", "warn-back")
SHAPES = ("host", "compute", "memory", "transfer", "wait", "exit", "grey")
FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What predict.py writes of the toy, with a hostile warning and an interval."""
    folder = tmp_path_factory.mktemp("browser") / "out"
    prediction = replace(
        toy_prediction({GEMM_1: 305.0}), warnings=(HOSTILE,), step_time_interval_us=(300.0, 400.0), interval_level=0.9
    )
    write_report(prediction, folder)
    return folder


@pytest.fixture(scope="module")
def page(out: Path) -> Iterator[Page]:
    assert PROGRAM is not None
    with Page(PROGRAM) as opened:
        opened.media("light")
        opened.open(out / "report.html", DRAWN)
        yield opened


def _predicted(out: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((out / "prediction.json").read_text())
    return result


def _shows(page: Page, name: str) -> str:
    return str(page.ask(f"document.getElementById({json.dumps(name)}).textContent")).replace("\xa0", " ")


def test_it_opens_in_time_without_complaints_or_requests(page: Page) -> None:
    assert page.opened_s < OPENS_S
    assert page.complaints() == []
    assert page.ask("document.title") != "owned"


def test_headline_is_that_of_the_document(page: Page, out: Path) -> None:
    given = _predicted(out)
    assert _shows(page, "predicted") == f"{given['step_time_us']:g} us"
    assert _shows(page, "measured") == f"{given['measured_step_time_us']:g} us"
    assert _shows(page, "error") == f"{100 * given['step_time_error']:+.1f} %"
    assert _shows(page, "interval") == "{:g} us to {:g} us".format(*given["step_time_interval_us"])
    assert page.ask("document.querySelector('.warnings li').textContent") == HOSTILE
    warnings_first = "document.querySelector('.warnings').compareDocumentPosition(document.querySelector('table')) & 4"
    assert page.ask(warnings_first)


def test_timeline_is_drawn_in_the_colors_of_its_key(page: Page) -> None:
    seen = page.ask(PIXELS)
    for word in ("host", "compute", "transfer"):
        color = page.ask(f"colorOf('{word}').match(/\\d+/g).join(',')")
        assert seen.get(color, 0) > 100, word
    keys = page.ask("[...document.querySelectorAll('#timeline-keys li')].map((item) => item.textContent)")
    assert {"host", "compute", "transfer", "wait for peers"} <= set(keys)


def test_keys_zoom_pan_reset_and_follow_the_path(page: Page) -> None:
    page.ask("document.getElementById('timeline-canvas').focus()")
    whole = _range(page)
    page.press("+")
    zoomed = _range(page)
    assert zoomed != whole and "370 us" in zoomed
    page.press("ArrowRight")
    assert _range(page) != zoomed
    page.press("0")
    assert _range(page) == whole
    page.press("n")
    assert _shows(page, "timeline-said").startswith("aten::mm [T2]: on rank 1")
    page.press("n")
    assert "latency 305 us" in _shows(page, "timeline-said")


def _range(page: Page) -> str:
    page.ask(FRAME)
    return _shows(page, "timeline-range")


def test_pointer_reports_what_it_points_at(page: Page) -> None:
    page.ask("document.getElementById('timeline-canvas').scrollIntoView({behavior: 'instant', block: 'center'})")
    page.ask(FRAME)
    x, y = page.ask("""(() => {
      const box = document.getElementById("timeline-canvas").getBoundingClientRect();
      return [box.x + 170 + (box.width - 171) / 2, box.y + 24 + 20 + 6]; // the first lane, half way
    })()""")
    page.mouse("mouseMoved", x, y)
    tip = str(page.ask("document.getElementById('timeline-tip').innerText"))
    assert not page.ask("document.getElementById('timeline-tip').hidden")
    assert "rank 0, stream 0 predicted" in tip and "wait for peers: c10d::allreduce_" in tip


def test_tables_sort_by_keyboard(page: Page) -> None:
    table = "document.querySelector('#breakdown table')"
    column = f"[...{table}.tBodies[0].rows].map((row) => row.cells[0].textContent)"
    before = page.ask(column)
    page.ask(f"{table}.querySelector('th:nth-child(2) button').focus()")
    page.press("Enter")
    assert page.ask(f"{table}.querySelector('th:nth-child(2)').ariaSort") == "descending"
    counts = page.ask(f"[...{table}.tBodies[0].rows].map((row) => Number(row.cells[1].textContent))")
    assert counts == sorted(counts, reverse=True)
    assert sorted(page.ask(column)) == sorted(before)


def test_dark_mode_by_system_and_by_button(page: Page) -> None:
    back = "getComputedStyle(document.documentElement).backgroundColor"
    light, corner = (
        page.ask(back),
        "[...document.getElementById('timeline-canvas').getContext('2d').getImageData(2, 2, 1, 1).data]",
    )
    page.media("dark")
    page.ask(FRAME)
    dark = page.ask(back)
    assert _brightness(light) > 200 > 60 > _brightness(dark)
    assert sum(page.ask(corner)[:3]) < 180  # the canvas, too
    page.ask("document.getElementById('theme').click()")  # light, whatever the system is
    page.ask(FRAME)
    assert page.ask(back) == light
    page.ask("document.getElementById('theme').click(); document.getElementById('theme').click()")
    page.media("light")
    assert page.ask(back) == light


def _brightness(rgb: str) -> float:
    parts = [float(part) for part in rgb.removeprefix("rgb(").removesuffix(")").split(",")]
    return sum(parts) / 3


def test_texts_stand_out_from_what_they_stand_on(page: Page) -> None:
    """WCAG 2.1: 4.5:1 for texts, 3:1 for bars and slices, in light and in dark."""
    for scheme in ("light", "dark"):
        page.media(scheme)
        page.ask(FRAME)
        names = json.dumps(["back", *PAIRED, *SHAPES])
        colors = page.ask(f"Object.fromEntries({names}.map((name) => [name, colorOf(name)]))")
        for text, on in (("text", "back"), ("text", "raised"), ("dim", "back"), ("dim", "raised"), ("accent", "back"),
                         ("warn", "warn-back"), ("text", "warn-back")):  # fmt: skip
            assert _contrast(colors[text], colors[on]) >= 4.5, (scheme, text, on)
        for shape in SHAPES:
            assert _contrast(colors[shape], colors["back"]) >= 3.0, (scheme, shape)
    page.media("light")


def _contrast(one: str, other: str) -> float:
    bright, dim = sorted(map(_luminance, (one, other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(rgb: str) -> float:
    parts = [float(part) / 255 for part in rgb.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# Texts of which a pair overlaps: labels of pictures, and words of one card.
OVERLAPS = """(() => {
  const boxOf = (item) => [item.textContent, item.getBoundingClientRect()];
  const shown = (list) => [...list].map(boxOf).filter(([, box]) => box.width);
  const over = [];
  for (const group of document.querySelectorAll(".ticks, .path-rows, .chart, .cards, .keys")) {
    const boxes = shown(group.querySelectorAll("span:not(.key), li, text, dt, dd"));
    boxes.forEach(([one, a], n) => boxes.slice(n + 1).forEach(([other, b]) => {
      const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (width > 1 && height > 2 && !one.includes(other) && !other.includes(one)) over.push(`${one} | ${other}`);
    }));
  }
  return over;
})()"""


def check_layout(page: Page, prediction: str = "#predicted") -> None:
    """No sideways scroll, the prediction above the fold and no texts over each other, on a desk and on a phone."""
    for width, height in ((1440, 900), (390, 844)):
        page.resize(width, height)
        page.ask(FRAME)
        assert page.ask("document.documentElement.scrollWidth") <= width
        assert page.ask(f"document.querySelector('{prediction}').getBoundingClientRect().bottom") < height
        assert page.ask(OVERLAPS) == []
    page.resize(1280, 900)


def test_layout_on_a_desk_and_on_a_phone(page: Page) -> None:
    page.ask("scrollTo(0, 0)")
    check_layout(page)


def test_layout_and_serious_findings_of_axe_core_on_every_page(page: Page, out: Path, tmp_path: Path) -> None:
    assert cli.main(["compare", str(out), str(out), "--quiet", "--html", str(tmp_path / "c.html")]) == 0
    assert cli.main(["roofline", str(out), "--out", str(tmp_path / "r.html")]) == 0
    for path in (tmp_path / "c.html", tmp_path / "r.html", out / "report.html"):
        page.open(path)
        page.ask(f"{AXE.read_text(encoding='utf-8')}; 0")
        for scheme in ("dark", "light"):
            page.media(scheme)
            page.ask(FRAME)
            assert page.ask(SERIOUS) == [], (path.name, scheme)
        check_layout(page, "h1")


@pytest.mark.mirror
@pytest.mark.parametrize("name", TRACES)
def test_layout_of_public_traces(page: Page, name: str, mirror: Path, tmp_path: Path) -> None:
    edits = [{"batch": {"factor": 2.0}}] if "Falconsai" in name else []
    prediction = predict(Request(trace=mirror / name, memory=False, whatif=edits))
    write_report(prediction, tmp_path / "out")
    page.events.clear()
    page.open(tmp_path / "out" / "report.html", DRAWN)
    check_layout(page)
    assert page.complaints() == []


def test_paper_is_white_and_has_the_timeline(page: Page, out: Path) -> None:
    page.open(out / "report.html", DRAWN)
    page.media("dark", "print")
    page.ask(FRAME)
    assert _brightness(page.ask("getComputedStyle(document.documentElement).backgroundColor")) > 200
    assert page.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
    page.media("light")
