"""Pages and pictures that are made from the code."""

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest

from docs.made.columns import column_page
from docs.made.commands import command_page
from docs.made.configuration import SCRIPTS, configuration_page, key_rows, setting_rows, words
from docs.made.docstrings import field_docs, summary
from docs.made.drawing import Arrow, Box, Drawing
from docs.made.markdown import blocks
from docs.made.pages import DOCS, ROOT
from docs.made.pictures import PICTURES
from docs.made.public_names import imported_names, name_page
from docs.made.small_run import SmallRun, small_graph
from docs.made.vocabulary import kinds, members, word_page
from gnnperf.cli import MODULE_OF_COMMAND
from gnnperf.core import NODE_COLUMNS, NodeType
from gnnperf.hardware import load_device
from gnnperf.predict.composition import composed
from gnnperf.predict.composition.messages import schema_keys
from gnnperf.predict.whatif import EDITS

SVG = "{http://www.w3.org/2000/svg}"


@dataclass
class _Base:
    """Has one.

    Attributes:
        low, high: bounds,
            both; middle: between them.
    """

    low: int
    high: int
    middle: int = 0


@dataclass
class _Derived(_Base):
    """Has more.

    Attributes:
        other: of its own; not: a field.
    """

    other: str | None = None


def test_public_names_fit_one_page_and_are_all_that_pages_and_examples_import() -> None:
    page = name_page()
    listed = re.findall(r"^\| `(gnnperf\.[\w.]+)` \| \S", page, re.MULTILINE)
    assert len(listed) == len(set(listed)) == int(page.split()[3]) <= 150
    assert "| `gnnperf.graph.build_graph` | The execution graph of a run" in page
    assert {"gnnperf.datasets.Evaluator"} < imported_names() <= set(listed)


def test_docstrings_tell_fields_of_bases_too() -> None:
    assert summary(_Derived) == "Has more."
    assert field_docs(_Derived) == {
        "low": "bounds, both", "high": "bounds, both", "middle": "between them.", "other": "of its own; not: a field.",
    }  # fmt: skip
    assert [row[:3] for row in setting_rows(_Derived)][2:] == [
        ("middle", "whole number", "0"), ("other", "text or null", "null"),
    ]  # fmt: skip
    assert words(dict[str, float]) == "mapping" and words(tuple[int, ...]) == "list of whole number"


@pytest.mark.parametrize(("script", "name", "node"), SCRIPTS)
def test_every_key_is_reported_with_a_meaning(script: str, name: str, node: type) -> None:
    rows = list(key_rows(composed(name, node)))
    keys = {key for key in schema_keys(node) if not any(other.startswith(f"{key}.") for other in schema_keys(node))}
    assert {row[0] for row in rows} == keys
    assert [row[0] for row in rows if not row[3]] == []
    assert all(f"| `{key}` |" in configuration_page() for key in keys)


def test_every_edit_is_reported_with_its_settings() -> None:
    for name, kind in EDITS.items():
        assert f"\n### {name}\n" in configuration_page()
        assert [row[0] for row in setting_rows(kind) if not row[3]] == [], name


def test_every_command_is_reported() -> None:
    page = command_page()
    assert [name for name in MODULE_OF_COMMAND if f"## gnnperf {name}" not in page] == []
    assert "## gnnperf ops predict\n" in page and "--max-regression PERCENT" in page


def test_columns_are_reported() -> None:
    assert all(f"| `{column.name}` | {column.dtype} |" in column_page() for column in NODE_COLUMNS)


def test_words_are_reported_as_their_comments_say() -> None:
    assert [kind for kind in kinds() if [value for value, _ in members(kind)] != [str(word) for word in kind]] == []
    assert "| `declared` | set by an edit (whatif) |" in word_page()
    assert "| `T1` | between ops |" in word_page()


def test_the_small_run_is_a_graph_like_any() -> None:
    counts = small_graph().num_nodes_by_type()
    assert (counts[NodeType.COMPUTE], counts[NodeType.COLLECTIVE], counts[NodeType.COMM]) == (8, 1, 4)
    assert small_graph().warnings == ()
    assert small_graph(SmallRun(transfers=2)).num_nodes_by_type()[NodeType.COLLECTIVE] == 2


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_plain_svg(name: str) -> None:
    picture = ET.fromstring(PICTURES[name]())
    assert picture.tag == f"{SVG}svg" and picture.find(f"{SVG}title") is not None
    assert {each.tag.removeprefix(SVG) for each in picture.iter()} <= {
        "svg", "title", "rect", "line", "text", "circle", "marker", "path",
    }  # fmt: skip


def _texts(picture: str) -> str:
    return " ".join(each.text or "" for each in ET.fromstring(picture).iter(f"{SVG}text"))


def test_pictures_show_what_pages_say_of_them() -> None:
    folding, contention = _texts(PICTURES["folding"]()), _texts(PICTURES["contention"]())
    assert "folded: rank 0 x 4" in folding
    whole, folded = folding.rpartition("whole: ")[2].split("; folded: ")
    assert whole.partition("the step takes")[2] == folded.partition("the step takes")[2]
    first, second = (int(words.split()[0]) for words in contention.rpartition("the step takes")[2].split("then"))
    assert second > first


def test_a_drawing_places_boxes_by_time_and_escapes_what_it_writes() -> None:
    boxes = (Box("a & b", 0.0, 50.0, "#fff", "x<y"), Box("c", 50.0, 100.0, "#000"))
    result = ET.fromstring(Drawing("t", ("a & b", "c"), boxes, (Arrow(0, 1, "#123456"),), ((("", "<i>"),),)).svg())
    rects = [each for each in result.iter(f"{SVG}rect") if each.get("fill") in ("#fff", "#000")]
    (x, width), (x2, width2) = ((float(r.attrib["x"]), float(r.attrib["width"])) for r in rects)
    assert x2 == pytest.approx(x + width, abs=0.2) and width == pytest.approx(width2, abs=0.2)
    assert {"a & b", "x<y", "<i>"} <= {each.text for each in result.iter(f"{SVG}text")}
    (line,) = [each for each in result.iter(f"{SVG}line") if each.get("stroke") == "#123456"]
    assert float(line.attrib["y2"]) > float(line.attrib["y1"])


def test_devices_on_pages_can_be_read(tmp_path: Path) -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / DOCS).rglob("*.md")]
    shown = [b for page in pages for b in blocks(page) if b.language == "yaml" and "\nkind: gpu\n" in b.text]
    assert len(shown) == 1
    path = tmp_path / "mine.yaml"
    path.write_text(shown[0].text)
    device = load_device(str(path))
    assert device.flops_per_s["float32"] == pytest.approx(
        device.num_sms * (device.lanes_per_sm or 0) * 2 * device.clock_hz, rel=0.01
    )  # fmt: skip
    assert (
        device.memory_bandwidth_bytes_per_s == (device.memory_bus_bits or 0) * (device.memory_pin_bits_per_s or 0) / 8
    )
