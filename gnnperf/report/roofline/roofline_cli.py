"""`gnnperf roofline FOLDER`."""

import argparse
from pathlib import Path

from gnnperf.core import Subparsers, add_command, require_writable, to_json, write_out

ROOFLINE = """\
How much of its device each op family uses: FLOPs per byte, FLOPs per second, and the highest rate there (the roof).

FOLDER is the --out of gnnperf predict. It has measured points where the step ran, on the device that it ran on.

Roofs: the vendor's peaks; and sustained, what the analytical model lets large products and long streams reach, or what
`gnnperf calibrate` measured. Copies between host and device and transfers are left out: links are their roofs.
"""
EXAMPLES = """\
gnnperf roofline outputs/own
gnnperf roofline outputs/own --out roofline.html
gnnperf roofline outputs/own --json
"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add `roofline`."""
    short = "op families of a step on the roofs of its device"
    parser = add_command(subparsers, "roofline", short, ROOFLINE, EXAMPLES, _roofline)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a folder of gnnperf predict")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write .html (one page, readable offline) or .csv")


def _roofline(arguments: argparse.Namespace) -> None:
    from gnnperf.report.roofline.picture import SUFFIXES, print_pictures, table_of, write
    from gnnperf.report.roofline.points import read_pictures

    if arguments.out is not None:
        require_writable(arguments.out, SUFFIXES)
    title, pictures = read_pictures(arguments.folder)
    if arguments.out is not None:
        write(arguments.out, f"Roofline of {title}", pictures)
    if arguments.json:
        write_out(to_json({"title": title, "points": table_of(pictures).to_dict("records")}))
    else:
        print_pictures(title, pictures, arguments.out)
