"""`gnnperf calibrate`. torch is loaded by what runs, not by the parser."""

import argparse
import math
from pathlib import Path

from gnnperf.core import Subparsers, add_command, print_result, require

DESCRIPTION = """\
Measure this machine, for predictions on it: sustained rates, bandwidth, launch floor, host overheads, embedding
lookups, links.

A line of the list for --ops: {"op": "aten::addmm", "shapes": [[64], [32, 128], [128, 64]], "dtype": "float32"}
with, if need be, "dtypes", "arguments", "direction" (forward, backward), "tables", "skew", "tf32", "transposed".
Nothing else should run on the machine meanwhile. On a CPU, one core with one thread is measured, as a rank has it.
"""
EXAMPLES = """\
gnnperf calibrate --out calibrated/mine                             writes device.yaml, cluster.yaml, ops.parquet
gnnperf predict trace.json.gz --gpu calibrated/mine/device.yaml     uses them
gnnperf calibrate --out ops/mine --ops ops.jsonl                    measures the ops of a list only
"""
DEFAULT_MINUTES = 5.0


def add_parsers(subparsers: Subparsers) -> None:
    """Add `calibrate`."""
    parser = add_command(subparsers, "calibrate", "measure this machine's device", DESCRIPTION, EXAMPLES, _calibrate)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: CUDA where there is a device, else the CPU")
    parser.add_argument("--minutes", type=float, default=DEFAULT_MINUTES, metavar="M",
                        help="time to measure (default: %(default)g); five rounds are made in any case")  # fmt: skip
    parser.add_argument("--ranks", type=int, metavar="N",
                        help="collectives of up to N ranks (default: one per GPU, or per core); 1: none")  # fmt: skip
    parser.add_argument("--ops", type=Path, metavar="FILE", help="measure these ops only (JSON lines)")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier calibration in --out")


def _calibrate(arguments: argparse.Namespace) -> None:
    from gnnperf.record.calibrate.ops_file import read_ops
    from gnnperf.record.calibrate.run import Ask, calibrate, check_out, machine

    require(math.isfinite(arguments.minutes) and arguments.minutes > 0, "--minutes", arguments.minutes, "more than 0")
    check_out(arguments.out, arguments.overwrite)
    ops = read_ops(arguments.ops) if arguments.ops else None
    here = machine(arguments.device)
    ranks = here.count if arguments.ranks is None else arguments.ranks
    limit = here.count if here.kind == "gpu" else 8 * here.count
    require(0 <= ranks <= limit, "--ranks", ranks, f"0 to {limit} on this machine")
    ask = Ask(ranks, ops)
    result = calibrate(arguments.out, here, ask, arguments.minutes, arguments.overwrite)
    widths = sorted((r.latency_us.high - r.latency_us.low) / 2 / r.latency_us.value for r in result)
    document = {"out": str(arguments.out), "device": here.label, "values": len(result),
                "rounds": len(result[0].round_medians_us), "median_interval": widths[len(widths) // 2]}  # fmt: skip
    line = "{out}: {device}, {values} measured values in {rounds} rounds; median interval +- {median_interval:.1%}"
    print_result(arguments, lambda: document, lambda: line.format(**document))
