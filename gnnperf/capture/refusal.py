"""What cannot be captured: steps that look at numbers, of which there are none."""

from __future__ import annotations

import traceback

from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from gnnperf.errors import InputError

_TORCH = ("/torch/", "gnnperf/capture/")


def refused(error: DataDependentOutputException | DynamicOutputShapeException, rank: int) -> InputError:
    """One message: which op, on which line of the program, and what to do."""
    op = str(error.func).removesuffix(".default")
    how = "the shape of its result" if isinstance(error, DynamicOutputShapeException) else "its result"
    return InputError(
        f"{op} needs numbers: {how} depends on values, and a captured step computes none",
        where=f"rank {rank}, {_line_of(error)}", allowed="steps whose ops and shapes follow from the program alone",
        remedy="give that step fixed sizes (pad what is routed, leave .item() and printing out), or record it with "
               "gnnperf record",
    )  # fmt: skip


def _line_of(error: BaseException) -> str:
    """The innermost line that is the program's own, by file name only: folders name people."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not any(part in f.filename.replace("\\", "/") for part in _TORCH)] or frames
    return f"{own[-1].filename.replace(chr(92), '/').rsplit('/', 1)[-1]}:{own[-1].lineno}"
