"""Text for terminals. Names come from strangers: control characters are shown, not sent, and nothing is markup."""

import errno
import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType


PIPE_WIDTH = 120  # characters
MAX_MESSAGE = 16_000  # characters of a refusal, which may quote a value


def visible(text: str) -> str:
    """The text with an escape for every character that is not printed, but for line breaks and tabs.

    Among these are ESC and CSI, which move the cursor and set titles, marks that turn the direction of reading, and
    halves of characters, which no encoding takes.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def counted(count: int, noun: str) -> str:
    """`1 node`, `2,433 nodes`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def say(text: object) -> None:
    """Print to standard output, at once."""
    print(visible(str(text)), flush=True)


def complain(program: str, error: object) -> None:
    """One message to standard error."""
    text = visible(str(error))
    shown = text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]} ..."
    print(f"{program}: {shown}", file=sys.stderr, flush=True)


def console(width: int | None = None, *, stderr: bool = False, quiet: bool = False) -> "Console":
    """A console of rich that takes no text as markup and shows every text as `visible` does.

    Without a terminal and COLUMNS its lines have PIPE_WIDTH characters.
    """
    if width is None and not (stderr or sys.stdout.isatty() or "COLUMNS" in os.environ):
        width = PIPE_WIDTH
    return _console_class()(width=width, stderr=stderr, quiet=quiet, markup=False, highlight=False, emoji=False)


@cache
def _console_class() -> "type[Console]":
    """Rich is loaded where something is drawn."""
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        """Pieces of one style pass `render`, those of parts before those of the whole, which may crop them."""

        is_part = False

        def render(self, renderable: "RenderableType", options: "ConsoleOptions | None" = None) -> Iterable[Segment]:
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


# Standard output and standard error that outlast their readers.
#
# A program whose output goes to a full disk, a closed descriptor or a reader that left still finishes its work. At
# its end it reports that its output could not be written.

UNREADABLE = 5  # exit code: standard output could not be written
DESCRIPTORS = {"stdout": 1, "stderr": 2}
BROKEN_PIPE = 141  # what a shell reports for a process ended by SIGPIPE


class _Lasting(io.RawIOBase):
    """A raw stream (None: it is closed) that swallows what it cannot write, and remembers why."""

    def __init__(self, raw: Any, name: str) -> None:
        self.raw, self.name = raw, name
        self.failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self.failure is None:
            try:
                if self.raw is None:
                    raise OSError(errno.EBADF, "it is closed")
                return int(self.raw.write(data) or 0)
            except OSError as failure:
                self.failure = failure
        return size

    def fileno(self) -> int:
        return int(super().fileno() if self.raw is None else self.raw.fileno())

    def isatty(self) -> bool:
        return self.raw is not None and bool(self.raw.isatty())


class Streams:
    """Both streams, while `lasting_streams` holds them."""

    def __init__(self) -> None:
        self._out = _replaced("stdout")
        _replaced("stderr")

    def exit_code(self, program: str) -> int:
        """0 if everything was written; else say why not."""
        sys.stdout.flush()
        failure = self._out.failure if self._out is not None else None
        if failure is None:
            return 0
        if isinstance(failure, BrokenPipeError):  # `gnnperf inspect … | head`: the reader has what it wanted
            return BROKEN_PIPE
        complain(program, f"standard output cannot be written: {failure.strerror}. Files are as they should be.")
        return UNREADABLE


@contextmanager
def lasting_streams() -> Iterator[Streams]:
    """Let standard output and standard error last for as long as the work does; characters they lack are escaped."""
    before = sys.stdout, sys.stderr
    try:
        yield Streams()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError):
                stream.flush()
        sys.stdout, sys.stderr = before


def _replaced(name: str) -> _Lasting | None:
    """The process' own stream, replaced; one that a program put there (a notebook, a test) stays: None."""
    stream: Any = getattr(sys, name)
    if stream is not getattr(sys, f"__{name}__"):
        return None
    if stream is None:
        while os.open(os.devnull, os.O_RDWR) < DESCRIPTORS[name]:  # or a file gets it, and what is printed
            pass
        lasting, encoding, by_line = _Lasting(None, name), "utf-8", False
    else:
        stream.flush()
        lasting, encoding = _Lasting(getattr(stream.buffer, "raw", stream.buffer), name), stream.encoding
        by_line = stream.line_buffering or name == "stderr"
    made = io.TextIOWrapper(io.BufferedWriter(lasting), encoding, "backslashreplace", line_buffering=by_line)
    setattr(sys, name, made)
    return lasting
