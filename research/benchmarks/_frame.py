"""What every benchmark shares: its command line, tables, columns of errors, and results that the summary reads."""

import argparse
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from rich.console import Console
from rich.table import Table

from gnnperf.core import InputError
from gnnperf.gnn import summarize
from research.benchmarks._results import start_saving

ERROR_COLUMNS = ("rows", "mean %", "median %", "p90 %", "max %", "bias %")


def run_main(main: Callable[..., int | None]) -> NoReturn:
    """Exit with what `main` returns, or 2 for bad input. `--save` keeps the results of `save_result` calls.

    `main` is without parameters, or gets the list of arguments of the command line.
    """
    arguments = [word for word in sys.argv[1:] if word != "--save"]
    takes_arguments = bool(inspect.signature(main).parameters)
    if arguments and not takes_arguments:
        sys.exit(f"{sys.argv[0]}: takes no arguments but --save")
    try:
        if "--save" in sys.argv:
            start_saving()
        code = main(arguments) if takes_arguments else main()
    except InputError as error:
        print(error, file=sys.stderr)
        code = error.exit_code
    sys.exit(code or 0)


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser that prints the module's docstring as it is."""
    name = f"python -m research.benchmarks.{Path(sys.argv[0]).stem}"
    return argparse.ArgumentParser(name, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def percent(share: float, digits: int = 1) -> str:
    """A share in percent; "-" where it is unknown."""
    return "-" if np.isnan(share) else f"{100 * share:.{digits}f}"


def print_head(*names: str) -> None:
    """The head of a Markdown table."""
    print_row(*names)
    print(f"|{'---|' * len(names)}", flush=True)


def print_row(*values: object) -> None:
    """A line of a Markdown table."""
    print(f"| {' | '.join(map(str, values))} |", flush=True)


def error_texts(predicted: Any, measured: Any) -> tuple[str, ...]:
    """ERROR_COLUMNS of predictions; rows without one are not counted."""
    errors = summarize(np.asarray(predicted, float), np.asarray(measured, float))
    shown = (errors.mean_ape, errors.median_ape, errors.p90_ape, errors.max_ape)
    return str(errors.num_nodes), *(f"{100 * share:.1f}" for share in shown), f"{100 * errors.bias:+.1f}"


def right_aligned(title: str, *names: str) -> Table:
    """A table whose first column names the row; the others hold numbers."""
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    return table


def show(*tables: Table, width: int = 160) -> None:
    """Print tables."""
    console = Console(width=width)
    for table in tables:
        console.print(table)
