"""`gnnperf roofline PATH`."""

from __future__ import annotations

import argparse
from pathlib import Path

from gnnperf.core import require_writable

ROOFLINE = """\
Which share of its device each op family reaches: FLOPs per byte, FLOPs per second, and the roof above.

PATH is a folder that predict.py wrote, with the numbers of its device (of versions before, its name is looked up in the
catalog: pass --hardware where it was changed or comes from a file), or a trace, which is predicted here. Both have
measured points where the step ran, on the device that it ran on.

Roofs: the vendor's peaks; and sustained, what the analytical model lets large products and long streams reach, or what
`gnnperf calibrate` measured. Ops' nodes only: copies between host and device, and transfers, have links as their roofs.
"""


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `roofline`."""
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
    from gnnperf.report.roofline.sheet import SUFFIXES, print_sheets, write

    if arguments.out is not None:
        require_writable(arguments.out, SUFFIXES)
    source = read_source(arguments.path, arguments.hardware, arguments.checkpoint, arguments.step)
    pictures = pictures_of(source.nodes, source.predicted_on, source.measured_on)
    sheets = [sheet_of(picture) for picture in pictures]
    if arguments.out is not None:
        write(arguments.out, table_of(pictures), f"Roofline of {source.title}", sheets)
    print_sheets(source.title, sheets, arguments.out)
    return 0
