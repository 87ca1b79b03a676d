"""What cannot be captured: steps that look at numbers, of which there are none."""

from __future__ import annotations

import traceback

from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from gnnperf.core import InputError

_TORCH = ("/torch/", "gnnperf/generate/capturing/")


# How torch says that it looked for numbers outside of its ops (.numpy(), a C++ extension).
_LOOKED = (
    "not supported for tensor subclasses",
    "data is not allocated",
    "Not available for 'meta' device",
    "data pointer",
)


def refused(error: Exception, rank: int) -> InputError | None:
    """One message: which op, on which line of the program, and what to do; None: the error is about something else."""
    if isinstance(error, DataDependentOutputException):
        return _needs_numbers(f"{_name(error.func)} needs numbers: its result", error, rank)
    if isinstance(error, DynamicOutputShapeException):
        return _needs_numbers(f"{_name(error.func)} needs numbers: the shape of its result", error, rank)
    if any(words in str(error) for words in _LOOKED):
        return _needs_numbers("a tensor's memory is read: what follows", error, rank)
    return None


def _name(op: object) -> str:
    return str(op).removesuffix(".default")


def _needs_numbers(what: str, error: Exception, rank: int) -> InputError:
    return InputError(
        f"{what} depends on values, and a captured step computes none",
        where=f"rank {rank}, {_line_of(error)}", allowed="steps whose ops and shapes follow from the program alone",
        remedy="give that step fixed sizes (pad what is routed, leave .item() and printing out), or record it with "
               "gnnperf record",
    )  # fmt: skip


def _line_of(error: BaseException) -> str:
    """The innermost line that is the program's own, by file name only: folders name people."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not any(part in f.filename.replace("\\", "/") for part in _TORCH)] or frames
    return f"{own[-1].filename.replace(chr(92), '/').rsplit('/', 1)[-1]}:{own[-1].lineno}"
