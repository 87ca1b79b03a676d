"""The gnnperf command: packages are imported when requested, and bad input is one message with exit code 2."""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from gnnperf import __version__, cli
from gnnperf.cli import main
from gnnperf.core import InputError, Subparsers, load_plugin, plugin_names
from gnnperf.core.terminal import BROKEN_PIPE
from tests.report.search.test_command import RAW as LAYERS
from tests.shard.test_command import RAW as TABLES


def _command_module(monkeypatch: pytest.MonkeyPatch, command: str, run: Callable[[argparse.Namespace], int]) -> None:
    """Install a package whose only command is `command`."""
    margin = ModuleType(f"room_of_{command}")

    def add_parsers(subparsers: Subparsers) -> None:
        subparsers.add_parser(command, help=f"{command} something").set_defaults(run=run)

    margin.add_parsers = add_parsers  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, margin.__name__, margin)
    monkeypatch.setitem(cli.MODULE_OF_COMMAND, command, margin.__name__)


@pytest.fixture(autouse=True)
def _no_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "MODULE_OF_COMMAND", {})


def _raising(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        raise error

    return run


def test_only_the_slack_requested_for_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    _command_module(monkeypatch, "look", lambda arguments: 0)
    monkeypatch.setitem(cli.MODULE_OF_COMMAND, "heavy", "no_such_module_anywhere")
    assert cli.main(["look"]) == 0
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        cli.main(["heavy"])


@pytest.mark.parametrize(("run", "code"), [(lambda arguments: 5, 5), (_raising(KeyboardInterrupt()), 130)])
def test_exit_code_of_the_handler_and_of_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[argparse.Namespace], int], code: int
) -> None:
    _command_module(monkeypatch, "look", run)
    assert cli.main(["look"]) == code


def test_bad_input_is_one_message_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _command_module(monkeypatch, "look", _raising(InputError("is empty", where="a.json", remedy="profile again")))
    assert cli.main(["look"]) == 2
    assert capsys.readouterr().err == "gnnperf: a.json: is empty. What to do: profile again.\n"


def test_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    _command_module(monkeypatch, "look", _raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli.main(["look"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("prdict trace", "gnnperf: no command 'prdict'. Allowed: predict, "),
        ("predict trace --gpus h100_sxm", "gnnperf: predict: unknown argument '--gpus'. Allowed: --help, --json"),
        ("predict trace --gpus h100_sxm", "did you mean --gpu?"),
        ("predict trace --nonsense", "--quiet.\n"),
        ("predict trace hardware=h100_sxm", "did you mean --set hardware=h100_sxm?"),
        (f"predict {__file__} {__file__}", "give one path; files of several ranks go into one folder."),
    ],
)
def test_misspelled_words_are_named_with_what_was_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    monkeypatch.setitem(cli.MODULE_OF_COMMAND, "predict", "gnnperf.report.predict_cli")
    assert cli.main(words.split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], []])
def test_help_lists_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    _command_module(monkeypatch, "look", lambda arguments: 0)
    _command_module(monkeypatch, "listen", lambda arguments: 0)
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    shown = capsys.readouterr().out
    assert stopped.value.code == 0
    assert "look something" in shown and "listen something" in shown


def test_commands_of_other_distributions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One function may add several commands, each an entry point."""

    def add_parsers(subparsers: Subparsers) -> None:
        for name in ("smell", "taste"):
            subparsers.add_parser(name, help=f"{name} something").set_defaults(run=lambda parsed: 6)

    monkeypatch.setattr(cli.core, "plugin_names", lambda group: ("smell", "taste"))
    monkeypatch.setattr(cli.core, "load_plugin", lambda group, name, where: add_parsers)
    assert cli.main(["taste"]) == 6
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "taste something" in capsys.readouterr().out


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_commands_on_traces_and_plans_load_no_torch(tmp_path: Path) -> None:
    """One process runs them all and prints their exit codes."""
    ops, tables, plan = (tmp_path / name for name in ("ops.jsonl", "tables.yaml", "plan.yaml"))
    ops.write_text(json.dumps({"op": "aten::mm", "shapes": [[4, 4], [4, 4]], "dtype": "bfloat16"}))
    tables.write_text(yaml.safe_dump(TABLES))
    plan.write_text(yaml.safe_dump(LAYERS))
    commands = ("inspect /no/such/trace.json", f"ops predict {ops} --hardware t4",
                f"shard {tables} --devices 1 --hardware a100_sxm_80gb",
                f"search {plan} --devices 1 --gpu a100_sxm_80gb")  # fmt: skip
    code = "import sys; from gnnperf.cli import main; codes = [main(words.split()) for words in sys.argv[1:]]"
    done = _python("-c", f"{code}; print(*codes, 'torch' in sys.modules)", *commands)
    assert done.stdout.split()[-5:] == ["2", "0", "0", "0", "False"], done.stderr
    assert "/no/such/trace.json" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "result"),
    [("wh", "what-if"), ("predict trace --gpu h20", "h20 h200"), ("predict trace --checkp", "--checkpoint")],
)
def test_completion_in_bash(words: str, result: str) -> None:
    given, made = words.split(), _python("-m", "gnnperf", "completion")
    call = f"_gnnperf gnnperf {given[-1]} {' '.join(given[-2:-1])}"
    script = f"{made.stdout}\nCOMP_WORDS=(gnnperf {words}); COMP_CWORD={len(given)}; {call}; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == result


def test_module_and_version() -> None:
    done = _python("-m", "gnnperf", "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"gnnperf {__version__}\n"


def test_reader_that_leaves_early_is_no_traceback() -> None:
    code = """
import sys, types
from gnnperf import cli
def add_parsers(subparsers):
    subparsers.add_parser("talk").set_defaults(run=lambda a: [print("word" * 1000) for _ in range(1000)] and 0)
sys.modules["talker"] = types.SimpleNamespace(add_parsers=add_parsers)
cli.MODULE_OF_COMMAND["talk"] = "talker"
sys.exit(cli.main(["talk"]))
"""
    command = ["bash", "-c", '"$0" -c "$1" | head -n 1 | wc -l; echo ${PIPESTATUS[0]}', sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["1", str(BROKEN_PIPE)]
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [["-m", "gnnperf", "--help"], ["predict.py", "--help"], ["train.py", "--help"]])
def test_help_loads_no_numerical_library(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, timeout=60, check=False,
        cwd=Path(__file__).parents[1],
    )  # fmt: skip
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0 and "argparse" in loaded
    assert loaded.isdisjoint({"numpy", "pandas", "numba", "torch"})
    assert "import" in done.stdout or "Keys (key=value):" in done.stdout


def test_an_entry_point_of_an_installed_distribution_is_loaded() -> None:
    assert "gnnperf" in plugin_names("console_scripts")
    assert load_plugin("console_scripts", "gnnperf", "script") is main
