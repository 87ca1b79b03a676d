"""Standard output and standard error that outlast their readers.

A program whose output goes to a full disk, a closed descriptor or a reader that left still finishes its work. At
its end it reports that its output could not be written.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gnnperf.core.output.terminal import complain

UNREADABLE = 5  # exit code: standard output could not be written
DESCRIPTORS = {"stdout": 1, "stderr": 2}
BROKEN_PIPE = 141  # what a shell reports for a process ended by SIGPIPE


class _Lasting(io.RawIOBase):
    """A raw stream that swallows what it cannot write, and remembers why.

    Args:
        raw: the stream; None: it is closed.
        name: of the stream.
    """

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
        self._before = sys.stdout, sys.stderr
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

    def give_back(self) -> None:
        """Put the streams of before in place."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError):
                stream.flush()
        sys.stdout, sys.stderr = self._before


@contextmanager
def lasting_streams() -> Iterator[Streams]:
    """Let standard output and standard error last for as long as the work does; characters they lack are escaped."""
    streams = Streams()
    try:
        yield streams
    finally:
        streams.give_back()


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
