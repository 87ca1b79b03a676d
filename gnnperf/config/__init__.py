"""Typed configuration: YAML holds the values, dataclasses beside their owners hold the types.

    @entry_point("train", TrainConfig)          conf/train.yaml:  defaults: [train_schema, data: cpu-gloo, _self_]
    def main(config: TrainConfig) -> None: ...

Everything a user can get wrong here (an unknown key, a wrong type, a bad value) ends as one message
that names the key, the value and what is allowed, and exit code 2.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gnnperf.config.flags import with_keys
from gnnperf.config.messages import REMEDY, check_keys, explain, missing_choice, unreadable
from gnnperf.config.own_files import with_names
from gnnperf.errors import InputError
from gnnperf.output.streams import lasting_streams
from gnnperf.output.terminal import complain

ConfigT = TypeVar("ConfigT")
INTERRUPTED = 130  # what a shell reports for a process ended by SIGINT
CONF_DIR = Path(__file__).resolve().parents[2] / "conf"


def register(name: str, node: type, group: str | None = None) -> None:
    """Make the dataclass `node` available to defaults lists as `name`, inside `group` if given."""
    ConfigStore.instance().store(name=name, node=node, group=group)


def entry_point(
    name: str, node: type[ConfigT], flags: tuple[str, ...] = ()
) -> Callable[[Callable[[ConfigT], Any]], Callable[[], None]]:
    """Decorate a task that takes a typed config; the result is a `main()` without arguments.

    `node` is registered as `<name>_schema`; conf/<name>.yaml lists it first in its defaults. Overrides come
    from the command line. In a multirun, a field `out` becomes the job's own folder below it, and a sweeper
    that looks for the best configuration minimizes what the task returns. Keys named in `flags` may be given as
    flags, too (`--max-step-ms 12` for `max_step_ms=12`).
    """

    def decorate(task: Callable[[ConfigT], Any]) -> Callable[[], None]:
        @functools.wraps(task)
        def job(raw: DictConfig) -> Any:
            with one_message(node), nothing_left_if_refused():
                return task(to_typed(raw, node))

        composed = hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name=name)(job)

        @functools.wraps(task)
        def main() -> None:
            register(f"{name}_schema", node)  # by name, for all of the process: whoever composes last decides
            with lasting_streams() as streams:
                with one_message(node), hydra_raises(), flags_as_keys(flags, node), paths_as_names():
                    composed()
                if code := streams.exit_code("error"):
                    raise SystemExit(code)

        return main

    return decorate


def to_typed(raw: DictConfig, node: type[ConfigT]) -> ConfigT:
    """The dataclass behind a composed config; its own checks run here.

    Raises:
        InputError: a key that `node` does not have, or a value it refuses.
    """
    check_keys(raw, node)
    config: Any = OmegaConf.to_object(raw)
    if hasattr(config, "out") and HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
        config.out = HydraConfig.get().runtime.output_dir
    return config


def composed(name: str, node: type[ConfigT], *overrides: str, **values: Any) -> ConfigT:
    """The configuration that the entry point `name` would get with these words on its command line.

    Args:
        name: of the entry point.
        node: its dataclass.
        overrides: words, paths of hardware, cluster and plan files among them.
        values: key -> value, set after them.

    Raises:
        InputError: words, keys or values that it would refuse.
    """
    register(f"{name}_schema", node)
    with in_our_words(node), hydra.initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        raw = hydra.compose(name, overrides=with_names(overrides, _own_choice))
        for key, value in values.items():
            OmegaConf.update(raw, key, value)
        return to_typed(raw, node)


@contextmanager
def one_message(node: type) -> Iterator[None]:
    """Turn what a user did wrong into one line on stderr and exit code 2; leave bugs their traceback."""
    try:
        with in_our_words(node):
            yield
    except InputError as error:
        _exit(error)
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
    except MissingConfigException as error:
        raise missing_choice(error.missing_cfg_file, error.options, str(error)) from error
    except OverrideParseException as error:
        raise unreadable(error.override, error.message) from error
    except (HydraException, OmegaConfBaseException) as error:
        raise explain(error, node) from error
    except ValueError as error:  # hydra's own, e.g. for `model=3` where a choice is due
        if not _raised_in_hydra(error):
            raise
        raise InputError(str(error).splitlines()[0], remedy=REMEDY) from error
    except OSError as error:
        if error.filename is None:
            raise
        what, where = str(error.strerror), str(error.filename)
        raise InputError(what, where=where, remedy="check the path and its permissions") from error


@contextmanager
def nothing_left_if_refused() -> Iterator[None]:
    """Take back the folder that hydra made for a job before it began, if the job refuses and nothing else is there."""
    try:
        yield
    except (InputError, OmegaConfBaseException):
        own = HydraConfig.get()
        out = Path(own.runtime.output_dir)
        if own.output_subdir and [path.name for path in out.iterdir()] == [own.output_subdir]:
            shutil.rmtree(out)
        raise


@contextmanager
def hydra_raises() -> Iterator[None]:
    """Let hydra raise instead of printing and exiting itself, so that one place writes the message."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("HYDRA_FULL_ERROR", None)
        else:
            os.environ["HYDRA_FULL_ERROR"] = before


@contextmanager
def flags_as_keys(flags: tuple[str, ...], node: type) -> Iterator[None]:
    """Let hydra, which reads sys.argv, see overrides where the user gave flags."""
    before = sys.argv
    sys.argv = [*before[:1], *with_keys(before[1:], flags, node)]
    try:
        yield
    finally:
        sys.argv = before


@contextmanager
def paths_as_names() -> Iterator[None]:
    """Let hydra, which reads sys.argv, see names where the user gave paths of hardware and cluster files."""
    before = sys.argv
    sys.argv = with_names(before, _own_choice)
    try:
        yield
    finally:
        sys.argv = before


def _own_choice(name: str, content: dict[str, object], group: str) -> None:
    """Make the content of a user's file a choice of its group."""
    ConfigStore.instance().store(name=name, node=content, group=group)


def _raised_in_hydra(error: BaseException) -> bool:
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and str(frames[-1][0].f_globals.get("__name__")).startswith("hydra.")


def _exit(error: InputError) -> None:
    logging.getLogger(__name__).debug("refused", exc_info=error)
    complain("error", error)
    raise SystemExit(error.exit_code)
