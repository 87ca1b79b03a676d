"""`gnnperf ops` and `gnnperf coverage`. What they need is imported when they run."""

import argparse
from pathlib import Path

from gnnperf.core import InputError, Subparsers, add_command, print_result, require_writable, say, write_text

OPS = """\
How long ops take on a device, by the analytical model: latency and bound (compute, memory, launch) per row.

TABLE is an op table: the ops.parquet of `gnnperf calibrate`, CSV, or JSON lines as `gnnperf calibrate --ops` reads:

  {"op": "aten::addmm", "shapes": [[64], [32, 128], [128, 64]], "dtype": "float32"}
  {"op": "aten::gelu", "shapes": [[32, 4096]], "dtype": "bfloat16", "direction": "backward"}

More columns describe embedding lookups: skew, zipf or reuse_histogram, tables and cache. Inductor's
fused kernels have op names of their own.

Times are the device's own, without the launch. A row without a prediction states why. Where the table has measured
latency_us, the errors are printed as well.
"""
OPS_EXAMPLES = """\
gnnperf ops predict ops.jsonl --gpu h100_sxm
gnnperf ops predict mine/ops.parquet --gpu mine/device.yaml --out predicted.csv
"""


def _ops(arguments: argparse.Namespace) -> None:
    from gnnperf.analytic import estimate_rows, read_op_rows
    from gnnperf.hardware import load_device
    from gnnperf.predict.op_estimates import SUFFIXES, OpEstimates, document, text, write_estimates

    device = load_device(arguments.hardware)
    if arguments.out is not None:
        require_writable(arguments.out, SUFFIXES)  # before work is done for it
    table, rows = read_op_rows(arguments.table)
    result = OpEstimates(table, rows, estimate_rows(rows, device), device)
    if arguments.out is not None:
        write_estimates(result, arguments.out)
    print_result(arguments, lambda: document(result), lambda: text(result))


COVERAGE = """\
Which part of a step is predicted from what: a measured op, the trace itself, a model, or nothing (uncovered).

--ops lists the calls that are worth measuring on the device.
"""
COVERAGE_EXAMPLES = """\
gnnperf coverage TRACE --checkpoint FILE                  shares by source, uncovered ops
gnnperf coverage TRACE --ops ops.jsonl                    ... and the list that `gnnperf calibrate --ops` measures
gnnperf coverage TRACE --measured mine/ops.parquet        with what was measured
gnnperf coverage TRACE --gpu NAME --ops ops.jsonl --choose 64
                                                            64 calls that correct most of the others, on a new device
"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add both commands."""
    ops = subparsers.add_parser("ops", help="latencies of single ops on a device, from an op table")
    actions = ops.add_subparsers(dest="action", required=True, metavar="ACTION")
    parser = add_command(actions, "predict", "predict an op table", OPS, OPS_EXAMPLES, _ops)
    parser.add_argument("table", type=Path, metavar="TABLE", help="op table: .parquet, .csv or .jsonl")
    parser.add_argument("--gpu", "--hardware", dest="hardware", required=True, metavar="NAME",
                        help="one of `gnnperf devices`, or a .yaml file")  # fmt: skip
    written = "write the table with its predictions: .parquet, .csv, .jsonl"
    parser.add_argument("--out", type=Path, metavar="FILE", help=written)
    short = "the predictor of each part of a trace, and what is uncovered"
    parser = add_command(subparsers, "coverage", short, COVERAGE, COVERAGE_EXAMPLES, _coverage)
    parser.add_argument("trace", type=Path, metavar="TRACE", help="trace file, directory of rank files, or archive")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="a trained network")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="ops that you measured (gnnperf calibrate --ops)")
    parser.add_argument("--gpu", "--hardware", dest="hardware", metavar="NAME",
                        help="predict for this device (default: the trace's)")  # fmt: skip
    parser.add_argument("--ops", type=Path, metavar="FILE", help="write the calls to measure, one JSON line each")
    parser.add_argument("--choose", type=int, metavar="N",
                        help="list at most N calls, whose measurements correct most of the others")  # fmt: skip


def _coverage(arguments: argparse.Namespace) -> None:
    from gnnperf.hardware import load_device
    from gnnperf.predict.api import predict
    from gnnperf.predict.coverage import calls_to_measure, coverage_document, coverage_lines, ops_to_measure
    from gnnperf.predict.request import Request

    if arguments.ops is not None and arguments.ops.exists():
        raise InputError("is there already", where=str(arguments.ops), remedy="name another file")
    if arguments.choose is not None and arguments.ops is None:
        raise InputError("has no file to write", where="--choose", remedy="add --ops FILE")
    hardware = None if arguments.hardware is None else load_device(arguments.hardware)
    estimate = predict(Request(trace=arguments.trace, hardware=hardware, checkpoint=arguments.checkpoint,
                             measured=arguments.measured))  # fmt: skip
    print_result(arguments, lambda: coverage_document(estimate), lambda: "\n".join(coverage_lines(estimate)))
    chosen = arguments.choose
    lines = list(ops_to_measure(estimate) if chosen is None else calls_to_measure(estimate, chosen))
    if arguments.ops is None:
        return
    if lines:
        write_text(arguments.ops, "".join(f"{line}\n" for line in lines))
        note = f"{len(lines)} calls; gnnperf calibrate --out mine --ops {arguments.ops}"
    else:
        note = "not written: there is no call to measure"
    if not arguments.json:
        say(f"{arguments.ops}: {note}")
