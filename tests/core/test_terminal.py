"""Names of strangers on a terminal: shown, never obeyed."""

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from gnnperf.core.terminal import BROKEN_PIPE, UNREADABLE, complain, console, say, visible

EVIL = "\x1b]0;title\x07\x1b[31mred\x9b2J\r[link=http://a]x[/link][bold]\u202egpj\ud800 :smile:"
SHOWN = r"\x1b]0;title\x07\x1b[31mred\x9b2J\r[link=http://a]x[/link][bold]\u202egpj\ud800 :smile:"


def test_only_what_is_not_printed_is_escaped() -> None:
    assert visible(EVIL) == SHOWN
    assert visible(SHOWN) == SHOWN
    assert visible("a\tb\nübergröße 模型 €") == "a\tb\nübergröße 模型 €"


def test_lines_and_messages_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    say(EVIL)
    complain("gnnperf", ValueError(EVIL))
    complain("gnnperf", "x" * 100_000)
    printed = capsys.readouterr()
    assert printed.out == f"{SHOWN}\n"
    first, second = printed.err.splitlines()
    assert first == f"gnnperf: {SHOWN}"
    assert len(second) < 17_000


def test_a_console_draws_texts_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(EVIL, title=EVIL)
    table.add_row(EVIL)
    table.add_row(Text(EVIL))
    console(width=400).print(Group(Text(EVIL, style="bold"), table), EVIL, soft_wrap=True)
    shown = capsys.readouterr().out
    assert shown.count(SHOWN.replace(r"\x07", "").replace(r"\r", "")) == 6  # these two rich leaves out
    assert "\x1b" not in shown and "\x9b" not in shown


def test_styles_still_reach_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    console(width=80).print(Text("\x1b[2Jname", style="bold"))
    assert capsys.readouterr().out == "\x1b[1m\\x1b[2Jname\x1b[0m\n"


def test_lines_of_a_pipe_are_long_enough_for_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console().width == 120  # standard output of tests is no terminal


# --- a program whose output that cannot be written does its work, reports it once, and has an exit code of its own ----


PROGRAM = """
import sys
from pathlib import Path
from gnnperf.core.terminal import lasting_streams
from gnnperf.core.terminal import complain, console, say, write_out
with lasting_streams() as streams:
    say("first Ü" * 5000)
    console().print("second █")
    if "slow" in sys.argv:
        import time; time.sleep(0.5)
    write_out('{"name": "Ü"}'.encode())
    complain("talk", "a warning")
    Path(sys.argv[1]).write_text("whole")
    sys.exit(streams.exit_code("talk"))
"""


def _run(command: str, written: Path, **environment: str) -> tuple[int, str, bytes]:
    code = f'"$0" -c "$1" "$2" {command}; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", code, sys.executable, PROGRAM, str(written)], capture_output=True, timeout=60,
                          check=False, env={"PYTHONPATH": ":".join(sys.path), **environment})  # fmt: skip
    assert written.read_text() == "whole"
    return done.returncode, done.stderr.decode(), done.stdout


@pytest.mark.parametrize(
    ("command", "code", "why"),
    [
        (">&-", UNREADABLE, "it is closed"),
        (">/dev/full", UNREADABLE, "No space left on device"),
        ("slow | head -c 5", BROKEN_PIPE, ""),
        ("2>&-", 0, ""),
        ("2>/dev/full", 0, ""),
        (">&- 2>&-", UNREADABLE, ""),
        ("", 0, ""),
    ],
)
def test_work_ends_and_one_message_states_why(tmp_path: Path, command: str, code: int, why: str) -> None:
    code_seen, messages, _ = _run(command, tmp_path / "file")
    assert code_seen == code
    assert "Traceback" not in messages
    lines = [line for line in messages.splitlines() if "standard output" in line]
    assert len(lines) == (1 if why else 0) and all(why in line for line in lines)


def test_who_prints_nothing_needs_no_stream(tmp_path: Path) -> None:
    silent = PROGRAM.replace("say(", "str(").replace("console().print(", "str(").replace("write_out(", "str(")
    command = ["bash", "-c", '"$0" -c "$1" "$2" >&-', sys.executable, silent, str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False, env={"PYTHONPATH": ":".join(sys.path)})
    assert (done.returncode, done.stderr) == (0, b"talk: a warning\n")


def test_an_encoding_that_lacks_characters_gets_escapes_and_json_stays_utf8(tmp_path: Path) -> None:
    code, messages, out = _run("", tmp_path / "file", PYTHONIOENCODING="ascii")
    assert (code, messages) == (0, "talk: a warning\n")
    assert out.startswith(rb"first \xdc") and rb"second \u2588" in out
    assert out.endswith('{"name": "Ü"}'.encode())
