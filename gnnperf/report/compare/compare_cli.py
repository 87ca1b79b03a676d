"""`gnnperf compare A B`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gnnperf.core import Subparsers, add_command, complain, to_json, untrusted, write_bytes, write_out

if TYPE_CHECKING:
    from gnnperf.report.compare.side import Side

EXCEEDED = 4  # exit code: step B is beyond a limit
STDOUT = Path("-")
DESCRIPTION = """\
What changed from step A to step B: by node type, phase and op, as a waterfall whose parts add up to the change.

A and B are each a folder of gnnperf predict (predicted) or a trace (measured). Each part is the time that the
critical path spends there; next to it are the latencies there, summed over all ranks.

exit code: 0, or 4 where step B is beyond --max-step-ms or --max-regression, or 2 for input that cannot be used
"""
EXAMPLES = """\
gnnperf compare outputs/a outputs/b                                two predictions
gnnperf compare outputs/a trace.json.gz --html change.html         a prediction and a trace, as a page
gnnperf compare outputs/a outputs/b --max-regression 5 --json      for a program to read
"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the `compare` command."""
    short = "two predictions, or a prediction and a trace: what changed in the step"
    parser = add_command(subparsers, "compare", short, DESCRIPTION, EXAMPLES, _compare, has_json=False)
    parser.add_argument("a", type=Path, metavar="A", help="a folder of gnnperf predict, or a trace")
    parser.add_argument("b", type=Path, metavar="B", help="the same")
    parser.add_argument("--step", type=int, metavar="N", help="of traces: the step in the window (default: the median)")
    parser.add_argument("--json", type=Path, nargs="?", const=STDOUT, metavar="FILE",
                        help="write the result as JSON; without FILE, print that only")  # fmt: skip
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the waterfalls as one page, readable offline")
    parser.add_argument("--quiet", action="store_true", help="print nothing but what is beyond a limit")
    parser.add_argument("--max-step-ms", type=float, metavar="MS", help="exit code 4 if step B takes longer")
    parser.add_argument("--max-regression", type=float, metavar="PERCENT",
                        help="exit code 4 if step B is longer than step A by more than this")  # fmt: skip


def _compare(args: argparse.Namespace) -> int:
    from gnnperf.report.compare.changes import compare
    from gnnperf.report.compare.text import Limits, comparison_document, rendered
    from gnnperf.report.console import show

    limits = Limits(args.max_step_ms, args.max_regression)
    result = compare(_side(args.a, args.step), _side(args.b, args.step))
    document = to_json(comparison_document(result, limits))
    if args.html is not None:
        from gnnperf.report.page.changes import comparison_page

        _write(args.html, comparison_page(result).encode())
    if args.json == STDOUT:
        write_out(document)
    elif args.json is not None:
        _write(args.json, document)
    exceeded = limits.exceeded(result)
    if not args.quiet and args.json != STDOUT:
        show(rendered(result, limits))
    else:
        for line in exceeded:
            complain("gnnperf", line)
    return EXCEEDED if exceeded else 0


def _side(path: Path, step: int | None) -> "Side":
    from gnnperf.report.compare.side import is_prediction, read_measured, read_prediction

    return read_prediction(path) if is_prediction(path) else read_measured(path, step)


def _write(path: Path, content: bytes) -> None:
    with untrusted.reading(path, "cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
