"""`gnnperf` as tests call it: in this process, with what it prints."""

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import pytest

from gnnperf import cli


def printed(*arguments: object) -> str:
    """Standard output of a call that succeeds, for fixtures that several tests share."""
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(shown):
        assert cli.main([*map(str, arguments)]) == 0
    shown.seek(0)
    return shown.read()


@dataclass(frozen=True)
class Command:
    """The command line; arguments may be paths or numbers."""

    capture: pytest.CaptureFixture[str]

    def ended(self, code: int, *arguments: object) -> tuple[str, str]:
        """Standard output and error of a call with this exit code."""
        self.capture.readouterr()
        assert cli.main([*map(str, arguments)]) == code, self.capture.readouterr().err
        return self.capture.readouterr()

    def shown(self, *arguments: object) -> str:
        """Standard output of a call that succeeds."""
        return self.ended(0, *arguments)[0]

    def document(self, *arguments: object) -> Any:
        """What a call with --json prints."""
        return json.loads(self.shown(*arguments, "--json"))

    def refused(self, *arguments: object) -> str:
        """The message of a call with exit code 2, which prints nothing else and has no traceback."""
        shown, message = self.ended(2, *arguments)
        assert shown == "" and "Traceback" not in message
        return message

    def refused_by(self, script: Callable[..., object], *arguments: object) -> str:
        """The message of a script that exits with code 2."""
        with pytest.raises(SystemExit) as exit_info:
            script(*arguments)
        assert exit_info.value.code == 2
        return self.capture.readouterr().err
