"""Pictures of a report in docs/images, each with the texts that it shows, so that a test can compare them.

GNNPERF_DATA_MIRROR=FOLDER python -m docs.made.screenshots     takes them anew, of README's what-if
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import struct
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

from docs.made.pages import DOCS, ROOT
from gnnperf.cli import main as gnnperf
from tests.chromium import Page, chromium
from tests.report.page.pages import DRAWN

FOLDER = ROOT / DOCS / "images"
WIDTH = 1280  # CSS pixels
# Picture -> element at whose top it begins, and its height.
PICTURES = {"report.png": ("body", 1000), "timeline.png": ("#timeline", 400)}
SIGNATURE, KEY = b"\x89PNG\r\n\x1a\n", b"Description"
RULER = "x0123456789 ms of compute, host and memory"
# Texts whose box begins inside the picture, and how wide the fonts of this machine are.
SHOWN = """(([top, height]) => {
  const walk = document.createTreeWalker(document.getElementById("main"), NodeFilter.SHOW_TEXT), texts = [];
  while (walk.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(walk.currentNode);
    const y = range.getBoundingClientRect().top + scrollY, text = walk.currentNode.textContent.trim();
    if (text && range.getClientRects().length && y >= top && y < top + height - 40) texts.push(text);
  }
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = getComputedStyle(document.body).font;
  return { texts, ruler: pen.measureText(%s).width };
})(%s)"""
# Share of pixels of which a channel differs visibly.
DIFFERENT = """Promise.all(%s.map((code) => new Promise((done) => {
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
    [canvas.width, canvas.height] = [image.width, image.height];
    pen.drawImage(image, 0, 0);
    done(pen.getImageData(0, 0, image.width, image.height).data);
  };
  image.src = `data:image/png;base64,${code}`;
}))).then(([one, other]) => {
  if (one.length !== other.length) return 1;
  let count = 0;
  for (let i = 0; i < one.length; i += 4)
    if ([0, 1, 2].some((channel) => Math.abs(one[i + channel] - other[i + channel]) > 32)) count += 1;
  return count / (one.length / 4);
})"""


def pictures(report: Path) -> dict[str, bytes]:
    """Name -> PNG with its texts, of an opened report."""
    program = chromium()
    assert program is not None, "a Chromium is on the PATH"
    with Page(program, (WIDTH, 1000)) as page:
        page.media("light")
        page.open(report, DRAWN)
        return {name: _picture(page, *place) for name, place in PICTURES.items()}


def _picture(page: Page, selector: str, height: int) -> bytes:
    top = page.ask(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().top + scrollY")
    top = 0 if selector == "body" else int(top)
    clip = {"x": 0, "y": top, "width": WIDTH, "height": height, "scale": 1}
    content = page.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
    shown = page.ask(SHOWN % (json.dumps(RULER), json.dumps([top, height])))
    return with_note(base64.b64decode(content), shown)


def with_note(png: bytes, note: Any) -> bytes:
    """The picture with a JSON value in a tEXt chunk behind its first one (https://www.w3.org/TR/png/#11tEXt)."""
    body = b"tEXt" + KEY + b"\0" + json.dumps(note).encode("ascii")
    end = len(SIGNATURE) + 4 + 4 + 13 + 4  # of IHDR
    return png[:end] + struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body)) + png[end:]


def note_of(png: bytes) -> Any:
    """What `with_note` put there."""
    begin = png.index(b"tEXt" + KEY) + 4 + len(KEY) + 1
    (size,) = struct.unpack(">I", png[begin - 8 - len(KEY) - 1 : begin - 4 - len(KEY) - 1])
    return json.loads(png[begin : begin + size - len(KEY) - 1])


def difference(one: bytes, other: bytes) -> float:
    """Share of pixels that differ; 1 where the sizes do."""
    program = chromium()
    assert program is not None, "a Chromium is on the PATH"
    with Page(program) as page:
        codes = [base64.b64encode(png).decode() for png in (one, other)]
        return float(page.ask(DIFFERENT % json.dumps(codes)))


def report_of(printed: str) -> Path:
    """The report that a command wrote."""
    return Path(re.findall(r"^wrote (.*report\.html)$", printed, re.MULTILINE)[-1])


def main() -> None:
    """Run README's first and third command in an empty folder, and take the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for command in ("data fetch worker0.1623212756351.pt.trace.json.gz --to traces",
                        "what-if traces batch=2x --out out"):  # fmt: skip
            assert gnnperf(shlex.split(command)) == 0
        for name, png in pictures(Path("out/report.html")).items():
            (FOLDER / name).write_bytes(png)
            print(f"wrote {FOLDER / name}", file=sys.stderr)


if __name__ == "__main__":
    main()
