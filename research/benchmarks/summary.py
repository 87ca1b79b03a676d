"""Write BENCHMARKS.md from the saved results: `python -m research.benchmarks summary [--check]`."""

import sys
from collections.abc import Sequence

from research.benchmarks._results import ROOT, STATEMENTS, read_result, row

FILE = ROOT / "BENCHMARKS.md"
HEAD = """# Benchmarks

`python -m research.benchmarks summary` writes this file from `docs/benchmarks/results`. A benchmark renews its results
with `--save`. Each claim links to its evidence: full tables, baselines and causes. The pages are listed
[by topic](docs/benchmarks/index.md).

Start with [What to expect on a new trace](docs/benchmarks/new-traces.md). The default prediction rebuilds the measured
step of a trace on its own GPU. Forecasts of other steps and blind predictions have their own rows.

Commands that read public traces need them in `datasets/public` (`gnnperf data fetch`), or in the folder
`GNNPERF_DATA_MIRROR`. Machine of all figures unless a page states another: two cores of an AMD EPYC, 24 GiB, no GPU,
Python 3.11. The last column has the date and the commit of the measurement. "page" marks figures that were copied from
the evidence page instead of saved by the command; they have the commit that entered them.
"""
COLUMNS = ("claim", "value", "95 % interval", "target", "met", "command", "date")


def text() -> str:
    """BENCHMARKS.md as the saved results have it."""
    rows = [row(statement, read_result(name)) for name, statement in STATEMENTS.items()]
    lines = [f"| {' | '.join(cells)} |" for cells in (COLUMNS, *rows)]
    return "\n".join([HEAD, lines[0], "|---" * len(COLUMNS) + "|", *lines[1:], ""])


def main(arguments: Sequence[str]) -> None:
    """Write the file; `--check` only compares it."""
    if "--check" not in arguments:
        FILE.write_text(text(), encoding="utf-8")
    elif FILE.read_text(encoding="utf-8") != text():
        sys.exit(f"{FILE.name} is not what the saved results give: python -m research.benchmarks summary")


if __name__ == "__main__":
    main(sys.argv[1:])
