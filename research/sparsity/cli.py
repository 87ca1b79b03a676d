"""`gnnperf sparsity-roofline`."""

from __future__ import annotations

import argparse
from pathlib import Path

from gnnperf.core import require_writable

DESCRIPTION = """\
How much faster a layer can get with a sparse weight (Shinn et al. 2023, The Sparsity Roofline).

The layer is weight [m, k] times [k, n]. Per pattern and sparsity: FLOPs of what is stored, bytes of it with the indices
that say where it is, and the units that can use the pattern: single values run on plain units, blocks from 16 x 16 on
matrix units, 2:4 on matrix units that know it. Speed-ups are given at the roof (peak rates and bandwidth) and as the
analytical model predicts them (sustained rates, launch floor).

  gnnperf sparsity-roofline --m 4096 --n 2048 --k 4096 --dtype float16 --hardware h100_sxm --accuracy mine.csv

mine.csv has the columns pattern, sparsity, accuracy; the dense network is "dense", 0.
"""
SPARSITIES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
PATTERN_NAMES = ("unstructured", "2:4", "block16", "block32", "block64")


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("sparsity-roofline", help="what sparsity can gain on a layer, by pattern",
                                   description=DESCRIPTION,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    for name, meaning in (("m", "rows of the weight: outputs"), ("n", "columns of the other matrix: tokens"),
                          ("k", "columns of the weight: inputs")):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, required=True, help=meaning)
    parser.add_argument("--dtype", default="float16", help="float64, float32, float16 (the default), bfloat16, int8")
    parser.add_argument("--tf32", action="store_true", help="float32 products may use TF32")
    parser.add_argument("--hardware", required=True, metavar="NAME", help="a device of the catalog, or a .yaml file")
    parser.add_argument("--patterns", nargs="+", default=PATTERN_NAMES, metavar="PATTERN",
                        help="unstructured, 2:4, blockN (default: %(default)s)")  # fmt: skip
    parser.add_argument("--sparsities", nargs="+", type=float, default=SPARSITIES, metavar="S",
                        help="shares that are not stored (default: %(default)s)")  # fmt: skip
    parser.add_argument(
        "--accuracy", type=Path, metavar="FILE", help="your accuracies: CSV of pattern, sparsity, accuracy"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write .html (one page, readable offline) or .csv")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from gnnperf.hardware import load_device
    from gnnperf.report.roofline.sheet import SUFFIXES, print_sheets, write
    from research.sparsity import roofline
    from research.sparsity.patterns import UNSTRUCTURED, Layer

    if arguments.out is not None:
        require_writable(arguments.out, SUFFIXES)
    layer = Layer(arguments.m, arguments.n, arguments.k, arguments.dtype, arguments.tf32)
    patterns = [roofline.pattern_of(name, "--patterns") for name in dict.fromkeys(arguments.patterns)]
    for sparsity in arguments.sparsities:
        roofline.check_sparsity(UNSTRUCTURED, sparsity, "--sparsities")
    accuracy = {} if arguments.accuracy is None else roofline.read_accuracies(arguments.accuracy)
    device = load_device(arguments.hardware)
    result = roofline.sparsity_roofline(layer, device, patterns, arguments.sparsities, accuracy)
    title, sheet = roofline.title_of(result), roofline.sheet_of(result)
    if arguments.out is not None:
        write(arguments.out, roofline.table_of(result), f"Sparsity roofline: {title}", [sheet])
    print_sheets(title, [sheet], arguments.out)
    return 0
