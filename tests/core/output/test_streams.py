"""A program whose output that cannot be written does its work, reports it once, and has an exit code of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gnnperf.core.terminal import BROKEN_PIPE, UNREADABLE

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
