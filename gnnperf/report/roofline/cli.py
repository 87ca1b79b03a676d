"""`gnnperf roofline FOLDER`."""

from __future__ import annotations

import argparse
from pathlib import Path

from gnnperf.core import require_writable

ROOFLINE = """\
Which share of its device each op family reaches: FLOPs per byte, FLOPs per second, and the roof above.

FOLDER is one that predict.py wrote. It has measured points where the step ran, on the device that it ran on.

Roofs: the vendor's peaks; and sustained, what the analytical model lets large products and long streams reach, or what
`gnnperf calibrate` measured. Ops' nodes only: copies between host and device, and transfers, have links as their roofs.
"""


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `roofline`."""
    parser = subparsers.add_parser("roofline", help="op families of a step on the roofs of its device",
                                   description=ROOFLINE,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what predict.py wrote")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write .html (one page, readable offline) or .csv")
    parser.set_defaults(run=_roofline)


def _roofline(arguments: argparse.Namespace) -> int:
    from gnnperf.report.roofline.picture import SUFFIXES, print_pictures, write
    from gnnperf.report.roofline.points import read_pictures

    if arguments.out is not None:
        require_writable(arguments.out, SUFFIXES)
    title, pictures = read_pictures(arguments.folder)
    if arguments.out is not None:
        write(arguments.out, f"Roofline of {title}", pictures)
    print_pictures(title, pictures, arguments.out)
    return 0
