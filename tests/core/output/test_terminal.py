"""Names of strangers on a terminal: shown, never obeyed."""

from __future__ import annotations

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from gnnperf.core.terminal import complain, console, say, visible

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
