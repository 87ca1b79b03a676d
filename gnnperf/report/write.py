"""The four output files of a prediction: all of them are written, or nothing is changed."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from gnnperf.core import InputError, csv_text, replacing_folder, task, to_json, untrusted, write_text
from gnnperf.predict import StepPrediction
from gnnperf.report.json_document import FORMAT, document
from gnnperf.report.page import html_report
from gnnperf.report.page.breakdown import occupancy
from gnnperf.report.summary import arrow_texts, coded_nodes, collectives, kernels, leading, totals, work_table
from gnnperf.report.timeline import tracks, write_timeline

FILES = ("prediction.json", "nodes.parquet", "timeline.json.gz", "report.html")


def default_out(estimate: StepPrediction) -> Path:
    """outputs/predict/<run>-<mode>-<hardware>, in characters that every file system takes."""
    words = (estimate.prediction.graph.name, str(estimate.mode), estimate.hardware)
    name = "-".join(word for word in words if word)
    return Path("outputs/predict") / "".join(c if c.isalnum() or c in "._-" else "_" for c in name).lstrip(".")


def check_output(out: Path) -> Path:
    """Whether `out` may be written: absent, an empty folder, or an earlier prediction; return it.

    Raises:
        InputError: a file, a folder with other content, or no permission. Call it before the long work.
    """
    remedy = "choose another out=DIR"
    with untrusted.reading(out, "cannot be written to", remedy=remedy):
        if out.is_symlink() or (out.exists() and not out.is_dir()):
            raise InputError("is not a folder", where=str(out), remedy=remedy)
        names = sorted(path.name for path in out.iterdir()) if out.exists() else []
        strangers = [name for name in names if name not in FILES]
        if strangers or (names and not _is_prediction(out)):
            what = f"holds files that are not a prediction of gnnperf ({', '.join(strangers[:3]) or FILES[0]})"
            allowed = "a new or empty folder, or an earlier prediction"
            raise InputError(what, where=str(out), allowed=allowed, remedy=remedy)
        parent = next(path for path in out.absolute().parents if path.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise InputError("cannot be written to", where=str(parent), remedy=remedy)
    return out


def write_report(estimate: StepPrediction, out: Path) -> tuple[Path, ...]:
    """Write prediction.json, nodes.parquet, timeline.json.gz and report.html; return their paths.

    Raises:
        InputError: `out` may not or cannot be written; nothing is left behind.
    """
    check_output(out)
    with replacing_folder(out) as temporary:
        _write_files(estimate, temporary)
    return tuple(out / name for name in FILES)


def _write_files(estimate: StepPrediction, folder: Path) -> None:
    with task("writing the report", len(FILES), "files") as advance, ThreadPoolExecutor(2) as others:
        nodes = coded_nodes(estimate)
        # Columns of both are encoded and packed without the interpreter's lock.
        stored = others.submit(_write_nodes, nodes, folder / "nodes.parquet")
        slices = tracks(estimate)
        timeline = others.submit(write_timeline, estimate, slices, folder / "timeline.json.gz")
        given = document(estimate)
        (folder / "prediction.json").write_bytes(to_json(given))
        advance(1.0)
        (folder / "report.html").write_text(html_report(estimate, nodes, slices, given), encoding="utf-8")
        advance(1.0)
        for written in (timeline, stored):
            written.result()
            advance(1.0)


def _write_nodes(nodes: pd.DataFrame, path: Path) -> None:
    """Write categories as words and indices, which Parquet stores; readers receive texts."""
    arrow = {str(name): arrow_texts(column) if isinstance(column.dtype, pd.CategoricalDtype) else pa.array(column)
             for name, column in nodes.items()}  # fmt: skip
    pq.write_table(pa.table(arrow), path, store_schema=False)


def _is_prediction(folder: Path) -> bool:
    try:
        result = msgspec.json.decode((folder / FILES[0]).read_bytes())
    except (OSError, msgspec.DecodeError):
        return False
    return isinstance(result, dict) and result.get("format") == FORMAT


def tables(prediction: StepPrediction) -> dict[str, pd.DataFrame]:
    """File name -> table: ops, kernels, collectives, what each rank does; times are in us, summed over ranks."""
    nodes = coded_nodes(prediction)
    work = work_table(nodes)
    ops = totals(work, ["op_name", "node_type", "phase", "family"])
    return {
        "ops.csv": leading(ops, len(ops)),
        "kernels.csv": kernels(work),
        "collectives.csv": collectives(work),
        "ranks.csv": occupancy(nodes, document(prediction)),
    }


def write_tables(prediction: StepPrediction, folder: Path) -> tuple[Path, ...]:
    """Write `tables` into a folder, each file whole or not at all; return their paths.

    Raises:
        InputError: the folder cannot be written.
    """
    written = []
    with untrusted.reading(folder, "cannot be written to", remedy="choose another tables=FOLDER"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables(prediction).items():
            write_text(folder / name, csv_text(table))
            written.append(folder / name)
    return tuple(written)
