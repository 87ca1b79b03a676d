"""Text for terminals. Names come from strangers: control characters are shown, not sent, and nothing is markup."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

MAX_MESSAGE = 16_000  # characters of a refusal, which may quote a value


def visible(text: str) -> str:
    """The text with an escape for every character that is not printed, but for line breaks and tabs.

    Among these are ESC and CSI, which move the cursor and set titles, marks that turn the direction of reading, and
    halves of characters, which no encoding takes.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def say(text: object) -> None:
    """Print to standard output, at once."""
    print(visible(str(text)), flush=True)


def complain(program: str, error: object) -> None:
    """One message to standard error."""
    text = visible(str(error))
    shown = text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]} ..."
    print(f"{program}: {shown}", file=sys.stderr, flush=True)


def console(width: int | None = None, *, stderr: bool = False, quiet: bool = False) -> Console:
    """A console of rich that reads no text as markup and shows every text as `visible` does.

    Args:
        width: characters of a line; None: the terminal's.
        stderr: to standard error.
        quiet: prints nothing.
    """
    return _console_class()(width=width, stderr=stderr, quiet=quiet, markup=False, highlight=False, emoji=False)


@cache
def _console_class() -> type[Console]:
    """Rich is loaded where something is drawn."""
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        """Pieces of one style pass `render`, those of parts before those of the whole, which may crop them."""

        is_part = False

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            if self.is_part:
                yield from super().render(renderable, options)
                return
            self.is_part = True
            try:
                for piece in super().render(renderable, options):
                    yield piece if piece.control else Segment(visible(piece.text), piece.style)
            finally:
                self.is_part = False

    return PrintableConsole


def write_out(content: bytes) -> None:
    """Bytes to standard output: JSON is UTF-8, whatever the terminal's encoding is."""
    out: Any = sys.stdout
    out.flush()
    out.buffer.write(content)
    out.buffer.flush()
