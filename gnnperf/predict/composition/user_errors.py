"""What a user did wrong, as one message."""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from gnnperf.core import InputError, complain

INTERRUPTED = 130  # what a shell reports for a process ended by SIGINT
NO_SPACE = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@contextmanager
def one_message(node: type | None = None) -> Iterator[None]:
    """Turn what a user did wrong into one line on stderr and exit code 2; leave bugs their traceback."""
    try:
        with in_our_words(node) if node else nullcontext():
            yield
    except InputError as error:
        logging.getLogger(__name__).debug("refused", exc_info=error)
        complain("error", error)
        raise SystemExit(error.exit_code) from error
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


@contextmanager
def in_our_words(node: type) -> Iterator[None]:
    """Turn what a user did wrong into an InputError; leave bugs as they are."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        message = _of_hydra(error, node) or (_of_system(error) if isinstance(error, OSError) else None)
        if message is None:
            raise
        raise message from error


def _of_hydra(error: Exception, node: type) -> InputError | None:
    if "hydra" not in sys.modules:
        return None
    from gnnperf.predict.composition.with_hydra import refusal

    return refusal(error, node)


def _of_system(error: OSError) -> InputError | None:
    if error.errno in NO_SPACE:
        return InputError(f"an output cannot be written ({error.strerror})", where="out",
                          remedy="choose a directory on a disk with space left")  # fmt: skip
    if error.filename is None:
        return None
    return InputError(str(error.strerror), where=str(error.filename), remedy="check the path and its permissions")
