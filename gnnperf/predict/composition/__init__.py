"""Typed configuration: YAML holds the values, dataclasses next to their owners hold the types.

    @entry_point("train", TrainConfig)          conf/train.yaml:  defaults: [train_schema, data: cpu-gloo, _self_]
    def main(config: TrainConfig) -> None: ...

Everything a user can get wrong here (an unknown key, a wrong type, a bad value) ends as one message
that names the key, the value and what is allowed, and exit code 2.
"""

import errno
import functools
import logging
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from gnnperf.core import InputError, collect_rarely, complain, lasting_streams, reuse_memory, use_python_strings
from gnnperf.predict.composition.command_line import OwnFiles
from gnnperf.predict.composition.plain import plain_config

ConfigT = TypeVar("ConfigT")
INTERRUPTED = 130  # what a shell reports for a process ended by SIGINT
NO_SPACE = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def entry_point(
    name: str, node: type[ConfigT] | str, flags: tuple[str, ...] = ()
) -> Callable[[Callable[[ConfigT], Any]], Callable[[], None]]:
    """Decorate a task that takes a typed config; the result is a `main()` without arguments.

    `node` is registered as `<name>_schema`; conf/<name>.yaml lists it first in its defaults. Overrides come
    from the command line. In a multirun, a field `out` becomes the job's own folder below it, and a sweeper
    that looks for the best configuration minimizes what the task returns. Keys named in `flags` may be given as
    flags, too (`--max-step-ms 12` for `max_step_ms=12`). Files of the user are read first: `node` may be a dotted name,
    which is imported only after them.
    """

    def decorate(task: Callable[[ConfigT], Any]) -> Callable[[], None]:
        @functools.wraps(task)
        def main() -> None:
            collect_rarely()
            reuse_memory()
            with lasting_streams() as streams:
                run(sys.argv)
                if code := streams.exit_code("error"):
                    raise SystemExit(code)

        @functools.wraps(task)
        def work(config: ConfigT) -> Any:
            use_python_strings()
            return task(config)

        def run(given: list[str]) -> None:
            own = OwnFiles()
            with one_message():
                words = own.overrides(given[1:])
            kind: type[ConfigT] = pkgutil.resolve_name(node) if isinstance(node, str) else node
            with one_message(kind):
                config = plain_config(name, kind, words)
                if config is not None:
                    work(config)
                    return
                from gnnperf.predict.composition.with_hydra import run_with_hydra

                run_with_hydra(name, kind, flags, work, given, own, words)

        return main

    return decorate


def composed(name: str, node: type[ConfigT], *overrides: str, **values: Any) -> ConfigT:
    """The configuration that the entry point `name` would get with these words on its command line.

    `node` is its dataclass. Paths of hardware, cluster and plan files may be among the words; `values` are set after
    them. Raises InputError: words, keys or values that it would refuse.
    """
    with in_our_words(node):
        config = plain_config(name, node, overrides, **values)
        if config is not None:
            return config
        from gnnperf.predict.composition.with_hydra import composed_by_hydra

        return composed_by_hydra(name, node, overrides, values)


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
        message = None
        if "hydra" in sys.modules:
            from gnnperf.predict.composition.with_hydra import refusal

            message = refusal(error, node)
        if isinstance(error, OSError) and message is None:
            message = _of_system(error)
        if message is None:
            raise
        raise message from error


def _of_system(error: OSError) -> InputError | None:
    if error.errno in NO_SPACE:
        return InputError(f"an output cannot be written ({error.strerror})", where="out",
                          remedy="choose a directory on a disk with space left")  # fmt: skip
    if error.filename is None:
        return None
    return InputError(str(error.strerror), where=str(error.filename), remedy="check the path and its permissions")
