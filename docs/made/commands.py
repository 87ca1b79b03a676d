"""The help texts of the `gnnperf` command, requested of its own parser, as Markdown."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from functools import cache

from gnnperf.cli import parser_of

WIDTH = "100"  # columns of a help text; argparse asks the environment
INTRODUCTION = """\
# The command line

What `gnnperf --help` and `gnnperf COMMAND --help` print. `train.py` and `predict.py` take keys instead of options:
[Keys of configuration](configuration.md). `improvement`, `interventions` and `noise-floor` come with the research code
of a checkout.

Exit codes: 0 fine, 2 input that cannot be used (one message says what and where), 3 too much is not covered
(`fallback.max_uncovered_share`), 4 beyond a limit (`gnnperf compare`).
"""


@cache
def command_page() -> str:
    """The whole page."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        parser = parser_of([])
        sections = [f"## {command.prog}\n\n```text\n{command.format_help()}```\n" for command in _commands(parser)]
        return "\n".join([INTRODUCTION, f"```text\n{parser.format_help()}```\n", *sections])
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


def help_texts() -> dict[str, str]:
    """Of gnnperf and of each command."""
    parser = parser_of([])
    return {command.prog: command.format_help() for command in [parser, *_commands(parser)]}


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Subcommands that do something, by name; one that only groups others stands by them."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for _, command in sorted(action.choices.items()):
                inner = list(_commands(command))
                yield from inner or [command]
