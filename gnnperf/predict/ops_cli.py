"""`gnnperf ops predict TABLE --hardware NAME`."""

from __future__ import annotations

import argparse
from pathlib import Path

from gnnperf.core import require_writable, say, to_json, write_out

DESCRIPTION = """\
How long ops take on a device, by the analytical model: latency and bound (compute, memory, launch) per row.

TABLE is an op table: the ops.parquet of `gnnperf calibrate`, CSV, or JSON lines as `gnnperf calibrate --ops` reads:

  {"op": "aten::addmm", "shapes": [[64], [32, 128], [128, 64]], "dtype": "float32"}
  {"op": "aten::gelu", "shapes": [[32, 4096]], "dtype": "bfloat16", "direction": "backward"}

More columns reach more forms: density and block (a sparse weight); skew, zipf, reuse_histogram or reuse_distances,
tables and cache (embedding lookups). 2:4 products, unfused attention and Inductor's fused kernels have op names of
their own; the README lists them.

Times are the device's own, without the launch. A row without an answer says why. Where the table has measured
latency_us, the errors are printed as well.
"""


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `ops predict`."""
    ops = subparsers.add_parser("ops", help="latencies of single ops on a device, from an op table")
    actions = ops.add_subparsers(dest="action", required=True, metavar="ACTION")
    parser = actions.add_parser("predict", help="answer an op table", description=DESCRIPTION,
                                formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("table", type=Path, metavar="TABLE", help="op table: .parquet, .csv or .jsonl")
    parser.add_argument("--hardware", required=True, metavar="NAME", help="a device of the catalog, or a .yaml file")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the table with its answers: .parquet, .csv, .jsonl"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run=_predict)


def _predict(arguments: argparse.Namespace) -> int:
    from gnnperf.analytic import answer_rows, read_op_rows
    from gnnperf.hardware import load_device
    from gnnperf.predict.op_answers import SUFFIXES, Answered, document, text, write_answers

    device = load_device(arguments.hardware)
    if arguments.out is not None:
        require_writable(arguments.out, SUFFIXES)  # before work is done for it
    table, rows = read_op_rows(arguments.table)
    result = Answered(table, rows, answer_rows(rows, device), device)
    if arguments.out is not None:
        write_answers(result, arguments.out)
    if arguments.json:
        write_out(to_json(document(result), indent=1))
    else:
        say(text(result))
    return 0
