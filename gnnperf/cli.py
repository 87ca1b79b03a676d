"""The `gnnperf` command: one subcommand per space, each package's parser imported only when it is requested."""

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from gnnperf import __version__, core

Adder = Callable[[Any], None]  # is given what argparse calls subparsers

# Subcommand -> the module whose add_parsers(subparsers) defines it. Only the one requested is imported, so that
# `gnnperf inspect` returns at once.
MODULE_OF_COMMAND = {
    "predict": "gnnperf.report.predict_cli",
    "what-if": "gnnperf.report.predict_cli",
    "report": "gnnperf.report.predict_cli",
    "inspect": "gnnperf.trace.data_cli",
    "import": "gnnperf.graph.import_cli",
    "data": "gnnperf.predict.build_cli",
    "train": "gnnperf.predict.train_cli",
    "record": "gnnperf.record.record_cli",
    "capture": "gnnperf.generate.capture_cli",
    "calibrate": "gnnperf.record.calibrate.calibrate_cli",
    "ops": "gnnperf.predict.ops_cli",
    "shard": "gnnperf.shard.shard_cli",
    "search": "gnnperf.report.search.search_cli",
    "coverage": "gnnperf.predict.ops_cli",
    "devices": "gnnperf.analytic.devices_cli",
    "compare": "gnnperf.report.compare.compare_cli",
    "roofline": "gnnperf.report.roofline.roofline_cli",
    "completion": "gnnperf.cli",
}
EPILOG = """\
examples:
  gnnperf predict trace.json.gz                         time of the step, and what holds it up
  gnnperf what-if trace.json.gz batch=2x                after a change
  gnnperf predict trace.json.gz --gpu h100_sxm,h200     on other GPUs
  gnnperf report trace.json.gz --open                   the step as a page in the browser
  gnnperf compare outputs/a outputs/b                   two predictions
  eval "$(gnnperf completion)"                          completion for bash, and for zsh after bashcompinit

train.py and predict.py take the keys of `gnnperf train` and `gnnperf predict` as Hydra overrides.
"""
COMPLETION_EXAMPLES = '  eval "$(gnnperf completion)"\ngnnperf completion > completion.bash'
COMPLETION = """\
_gnnperf() {{
  case "${{COMP_WORDS[1]}}:$3" in
    *:--gpu|*:--hardware) words="{devices}" ;;
{cases}
    *) [ "$COMP_CWORD" = 1 ] && words="{commands}" || words= ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$2"))
}}
complete -o default -F _gnnperf gnnperf"""
COMMANDS = "gnnperf.commands"  # entry points: subcommands of other installed distributions, each an add_parsers
INTERRUPTED = 130  # what a shell reports for a process ended by SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return its exit code.

    2 for bad input, with one message on stderr; 5 where standard output cannot be written, and 141 where its reader
    left: files are written all the same.
    """
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    core.collect_rarely()
    with core.lasting_streams() as streams:
        try:
            parsed, unknown = parser_of(arguments).parse_known_args(arguments)
            if unknown:
                raise _unknown(unknown[0], parsed)
            is_read = getattr(parsed, "json", False) or getattr(parsed, "quiet", False)  # by a program: then no bars
            with core.bars_on_terminal(bool(is_read)):
                code = int(parsed.run(parsed) or 0)
        except core.InputError as error:
            core.complain("gnnperf", error)
            return error.exit_code
        except KeyboardInterrupt:
            core.complain("gnnperf", "interrupted")
            return INTERRUPTED
        return code or streams.exit_code("gnnperf")


def _unknown(word: str, parsed: argparse.Namespace) -> core.InputError:
    """The error for a word that the command has no use for, with the one that was probably meant."""
    command: argparse.ArgumentParser = getattr(parsed, "parser", argparse.ArgumentParser("gnnperf"))
    names = [option for action in command._actions for option in action.option_strings if option.startswith("--")]
    options, remedy = {name.removeprefix("--"): name for name in names}, ""
    close = get_close_matches(word.partition("=")[0].lstrip("-"), options, 1)
    if word.startswith("-"):
        remedy = f"did you mean {options[close[0]]}?" if close else ""
    elif "=" in word and "--set" in names:
        remedy = f"did you mean --set {word}?"
    elif Path(word).exists():
        remedy = "give one path; files of several ranks go into one folder"
    where = command.prog.removeprefix("gnnperf ")
    return core.InputError(f"unknown argument {word!r}", where=where, allowed=", ".join(names), remedy=remedy)


def parser_of(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser with the subcommand requested, or with all of them (for --help)."""
    parser = argparse.ArgumentParser(
        prog="gnnperf",
        description="Predict the time of a training step from a trace or a plan, and what changes would do to it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gnnperf {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add_parsers in _adders(arguments[0] if arguments else ""):
        add_parsers(subparsers)
    return parser


def _adders(first: str) -> list[Adder]:
    """Of the first argument if that is a subcommand; of all subcommands for --help."""
    if first == "--version":
        return []
    if first in MODULE_OF_COMMAND:
        return [importlib.import_module(MODULE_OF_COMMAND[first]).add_parsers]
    others = core.plugin_names(COMMANDS)
    if first in others:
        return [core.load_plugin(COMMANDS, first, "gnnperf")]
    known = [*MODULE_OF_COMMAND, *others]
    if first and not first.startswith("-") and first not in known:
        close = get_close_matches(first, known, 1)
        raise core.InputError(f"no command {first!r}", allowed=", ".join(known),
                         remedy=f"did you mean {close[0]}?" if close else "")  # fmt: skip
    own = [importlib.import_module(module).add_parsers for module in dict.fromkeys(MODULE_OF_COMMAND.values())]
    return own + list(dict.fromkeys(core.load_plugin(COMMANDS, name, "gnnperf") for name in others))


def add_parsers(subparsers: Any) -> None:
    """Add the `completion` command."""
    core.add_command(subparsers, "completion", "shell completion of commands, options and devices",
                "Print a script for bash, and for zsh after bashcompinit.", COMPLETION_EXAMPLES, _completion,
                has_json=False)  # fmt: skip


def _completion(parsed: argparse.Namespace) -> None:
    from gnnperf.hardware import device_names

    commands = dict[str, argparse.ArgumentParser]()
    for action in parser_of([])._actions:
        commands |= action.choices or {} if isinstance(action, argparse._SubParsersAction) else {}
    cases = [f'    {name}:*) words="{" ".join(option for one in command._actions for option in one.option_strings)}" ;;'
             for name, command in commands.items()]  # fmt: skip
    print(COMPLETION.format(devices=" ".join(device_names()), cases="\n".join(cases), commands=" ".join(commands)))
