"""The four output files, written beside their folder and renamed: never half of them."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

import msgspec

from gnnperf.errors import InputError
from gnnperf.output.files import to_json
from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.progress import task
from gnnperf.report.document import FORMAT, document
from gnnperf.report.nodes_table import nodes_table
from gnnperf.report.page import html_report
from gnnperf.report.timeline import write_timeline

FILES = ("prediction.json", "nodes.parquet", "timeline.json.gz", "report.html")


def check_output(out: Path) -> Path:
    """Whether `out` may be written: absent, an empty folder, or an earlier prediction; return it.

    Raises:
        InputError: a file, a folder with other content, or no permission. Call it before the long work.
    """
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise InputError("is not a folder", where=str(out), remedy="choose another out=DIR")
    strangers = sorted(p.name for p in out.iterdir() if p.name not in FILES) if out.exists() else []
    if strangers or (out.exists() and any(out.iterdir()) and not _is_prediction(out)):
        raise InputError(
            f"holds files that are not a prediction of gnnperf ({', '.join(strangers[:3]) or FILES[0]})",
            where=str(out), allowed="a new or empty folder, or an earlier prediction",
            remedy="choose another out=DIR",
        )  # fmt: skip
    parent = next(p for p in (out.absolute().parent, *out.absolute().parents) if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError("cannot be written to", where=str(parent), remedy="choose another out=DIR")
    return out


def write_report(answer: StepPrediction, out: Path) -> tuple[Path, ...]:
    """Write prediction.json, nodes.parquet, timeline.json.gz and report.html; return their paths.

    Raises:
        InputError: `out` may not or cannot be written; nothing is left behind.
    """
    check_output(out)
    beside = out.absolute().parent / f".{out.name}.{uuid.uuid4().hex[:8]}"
    try:
        beside.mkdir(parents=True)
        _write_files(answer, beside)
        _replace(beside, out)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", where=str(out), remedy="choose another out=DIR"
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        _settle(_earlier(beside), out)
    return tuple(out / name for name in FILES)


def _write_files(answer: StepPrediction, folder: Path) -> None:
    with task("writing the report", len(FILES), "files") as advance:
        (folder / "prediction.json").write_bytes(to_json(document(answer)))
        advance(1.0)
        nodes = nodes_table(answer)
        nodes.to_parquet(folder / "nodes.parquet", index=False)
        advance(1.0)
        write_timeline(answer, folder / "timeline.json.gz")
        advance(1.0)
        (folder / "report.html").write_text(html_report(answer, nodes), encoding="utf-8")
        advance(1.0)


def _replace(beside: Path, out: Path) -> None:
    """Put the new folder in the place of an earlier one, which `_settle` removes, or brings back."""
    if out.exists():
        out.rename(_earlier(beside))
    beside.rename(out)


def _earlier(beside: Path) -> Path:
    """Where an earlier folder is while a new one takes its place."""
    return beside.with_name(f"{beside.name}.earlier")


def _settle(earlier: Path, out: Path) -> None:
    """However the exchange ended, by an error or Ctrl-C too: one of both folders is at its place, the other gone."""
    if earlier.exists() and not out.exists():
        earlier.rename(out)
    shutil.rmtree(earlier, ignore_errors=True)


def _is_prediction(folder: Path) -> bool:
    """Whether prediction.json there says that gnnperf wrote it."""
    try:
        found = msgspec.json.decode((folder / FILES[0]).read_bytes())
    except (OSError, msgspec.DecodeError):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT
