"""`gnnperf roofline PATH` and `gnnperf sparsity-roofline`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnnperf.core import require_writable

if TYPE_CHECKING:
    from gnnperf.report.roofline.sparsity import Sheet


ROOFLINE = """\
Which share of its device each op family reaches: FLOPs per byte, FLOPs per second, and the roof above.

PATH is a folder that predict.py wrote, with the numbers of its device (of versions before, its name is looked up in the
catalog: pass --hardware where it was changed or comes from a file), or a trace, which is predicted here. Both have
measured points where the step ran, on the device that it ran on.

Roofs: the vendor's peaks; and sustained, what the analytical model lets large products and long streams reach, or what
`gnnperf calibrate` measured. Ops' nodes only: copies between host and device, and transfers, have links as their roofs.
"""


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add both commands."""
    _add_roofline(subparsers)
    _add_sparsity_roofline(subparsers)


def _add_roofline(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("roofline", help="op families of a step on the roofs of its device",
                                   description=ROOFLINE,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("path", type=Path, metavar="PATH", help="a folder that predict.py wrote, or a trace")
    parser.add_argument("--hardware", metavar="NAME", help="device predicted for: of the catalog, or a .yaml file")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="of a trace: the model that predicts it")
    parser.add_argument(
        "--step", type=int, metavar="N", help="of a trace: the step in the window (default: the median)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write .html (one page, readable offline) or .csv")
    parser.set_defaults(run=_roofline)


def _roofline(arguments: argparse.Namespace) -> int:
    from gnnperf.report.roofline.picture import sheet_of, table_of
    from gnnperf.report.roofline.points import pictures_of, read_source
    from gnnperf.report.roofline.sparsity import SUFFIXES, write

    if arguments.out is not None:
        require_writable(arguments.out, SUFFIXES)
    source = read_source(arguments.path, arguments.hardware, arguments.checkpoint, arguments.step)
    pictures = pictures_of(source.nodes, source.predicted_on, source.measured_on)
    sheets = [sheet_of(picture) for picture in pictures]
    if arguments.out is not None:
        write(arguments.out, table_of(pictures), f"Roofline of {source.title}", sheets)
    print_sheets(source.title, sheets, arguments.out)
    return 0


def print_sheets(title: str, sheets: Sequence[Sheet], written: Path | None) -> None:
    """On the terminal, with the file that was written."""
    from rich.console import Group
    from rich.text import Text

    from gnnperf.report.console import show
    from gnnperf.report.roofline.sparsity import rendered

    wrote = [] if written is None else [Text(f"wrote {written}", style="green")]
    show(Group(Text(title, style="dim"), rendered(sheets), *wrote))


SPARSITY = """\
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


def _add_sparsity_roofline(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("sparsity-roofline", help="what sparsity can gain on a layer, by pattern",
                                   description=SPARSITY,
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
    parser.set_defaults(run=_sparsity_roofline)


def _sparsity_roofline(arguments: argparse.Namespace) -> int:
    from gnnperf.analytic import UNSTRUCTURED, Layer
    from gnnperf.hardware import load_device
    from gnnperf.report.roofline.sparsity import (
        SUFFIXES,
        check_sparsity,
        pattern_of,
        read_accuracies,
        sheet_of,
        sparsity_roofline,
        table_of,
        title_of,
        write,
    )

    if arguments.out is not None:
        require_writable(arguments.out, SUFFIXES)
    layer = Layer(arguments.m, arguments.n, arguments.k, arguments.dtype, arguments.tf32)
    patterns = [pattern_of(name, "--patterns") for name in dict.fromkeys(arguments.patterns)]
    for sparsity in arguments.sparsities:
        check_sparsity(UNSTRUCTURED, sparsity, "--sparsities")
    accuracy = {} if arguments.accuracy is None else read_accuracies(arguments.accuracy)
    result = sparsity_roofline(layer, load_device(arguments.hardware), patterns, arguments.sparsities, accuracy)
    title, sheet = title_of(result), sheet_of(result)
    if arguments.out is not None:
        write(arguments.out, table_of(result), f"Sparsity roofline: {title}", [sheet])
    print_sheets(title, [sheet], arguments.out)
    return 0
