"""Typed configuration: YAML holds the values, dataclasses next to their owners hold the types.

    @entry_point("train", TrainConfig)          conf/train.yaml:  defaults: [train_schema, data: cpu-gloo, _self_]
    def main(config: TrainConfig) -> None: ...

Everything a user can get wrong here (an unknown key, a wrong type, a bad value) ends as one message
that names the key, the value and what is allowed, and exit code 2.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import pkgutil
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gnnperf.core import InputError, complain, lasting_streams, rare_collection
from gnnperf.hardware import DEVICE_GROUP, conf_dir
from gnnperf.predict.composition.command_line import GROUPS, OwnFiles, escaped, literal, with_keys
from gnnperf.predict.composition.messages import (
    REMEDY,
    check_keys,
    explain,
    is_text,
    missing_choice,
    refuse_settings_of_list,
    unreadable,
)

ConfigT = TypeVar("ConfigT")
INTERRUPTED = 130  # what a shell reports for a process ended by SIGINT
NO_SPACE = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
HELP = frozenset({"-h", "--help"})
CONF_DIR = conf_dir(DEVICE_GROUP).parent


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
            with rare_collection(), lasting_streams() as streams:
                run(sys.argv)
                if code := streams.exit_code("error"):
                    raise SystemExit(code)

        def run(given: list[str]) -> None:
            own = OwnFiles()
            with one_message():
                words = own.overrides(given[1:])
            kind: type[ConfigT] = pkgutil.resolve_name(node) if isinstance(node, str) else node

            @functools.wraps(task)
            def job(raw: DictConfig) -> Any:
                with one_message(kind), nothing_left_if_refused():
                    return task(to_typed(raw, kind, own))

            ConfigStore.instance().store(
                f"{name}_schema", kind
            )  # by name, for all of the process: whoever composes last decides
            makes_folder = "output_subdir: null" not in (CONF_DIR / f"{name}.yaml").read_text(encoding="utf-8")
            with one_message(kind):
                overrides = as_text(with_keys(words, flags, kind), kind)
                offer(own)
                if HELP.intersection(overrides):
                    about = sys.modules[task.__module__].__doc__ or ""
                    print(about + help_text(name, [word for word in overrides if not word.startswith("-")]))
                elif not (makes_folder or any(word.startswith(("-", "hydra")) for word in overrides)):
                    task(to_typed(raw_config(name, overrides), kind, own))  # what hydra.main does, in half the time
                else:
                    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises, so that one place writes the message
                    sys.argv = [given[0], *overrides]
                    try:
                        hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name=name)(job)()
                    finally:
                        sys.argv = given  # as the user typed it

        return main

    return decorate


def help_text(name: str, overrides: list[str]) -> str:
    """Groups with their choices, and the composed configuration. Hydra's own takes a second: it copies per group."""
    composed_yaml = OmegaConf.to_yaml(raw_config(name, overrides))
    folders = sorted({file.parent for file in CONF_DIR.glob("*/**/*.yaml")})
    groups = [f"{folder.relative_to(CONF_DIR)}: {', '.join(sorted(each.stem for each in folder.glob('*.yaml')))}"
              for folder in folders]  # fmt: skip
    return "\n".join(["", "Groups (group=choice):", "", *groups, "", "Keys (key=value):", "", composed_yaml,
                      "Flags of Hydra: --hydra-help"])  # fmt: skip


def raw_config(name: str, overrides: Sequence[str]) -> DictConfig:
    """What Hydra composes."""
    with hydra.initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        return hydra.compose(name, overrides=list(overrides))


def to_typed(raw: DictConfig, node: type[ConfigT], own: OwnFiles) -> ConfigT:
    """The dataclass behind a composed config, with the content of the user's files; its own checks run here."""
    check_keys(raw, node)
    config: Any = OmegaConf.to_object(raw)
    for group in GROUPS:
        if getattr(config, group, None):
            setattr(config, group, own.inserted(getattr(config, group)))
    if hasattr(config, "out") and HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
        config.out = HydraConfig.get().runtime.output_dir
    return config


def composed(name: str, node: type[ConfigT], *overrides: str, **values: Any) -> ConfigT:
    """The configuration that the entry point `name` would get with these words on its command line.

    `node` is its dataclass. Paths of hardware, cluster and plan files may be among the words; `values` are set after
    them. Raises InputError: words, keys or values that it would refuse.
    """
    ConfigStore.instance().store(f"{name}_schema", node)
    own = OwnFiles()
    with in_our_words(node):
        words = as_text(own.overrides(overrides), node)
        offer(own)
        raw = raw_config(name, words)
        for key, value in values.items():
            OmegaConf.update(raw, key, escaped(value), force_add=isinstance(value, Mapping))  # check_keys sees them all
        return to_typed(raw, node, own)


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
    except MissingConfigException as error:
        raise missing_choice(error.missing_cfg_file, error.options, str(error)) from error
    except OverrideParseException as error:
        raise unreadable(error.override, error.message) from error
    except (HydraException, OmegaConfBaseException) as error:
        raise explain(error, node) from error
    except ValueError as error:  # hydra's own, e.g. for `model=3` where a choice is due
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if not str(frame.f_globals.get("__name__")).startswith("hydra."):
            raise
        raise InputError(str(error).splitlines()[0], remedy=REMEDY) from error
    except OSError as error:
        if error.errno in NO_SPACE:
            raise InputError(f"an output cannot be written ({error.strerror})", where="out",
                             remedy="choose a directory on a disk with space left") from error  # fmt: skip
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


def as_text(words: Sequence[str], node: type) -> list[str]:
    """The overrides, where a key takes text with values that Hydra reads back as they are."""
    result = []
    for word in words:
        key, separator, value = word.partition("=")
        refuse_settings_of_list(node, key.lstrip("+~"), value)
        result.append(f"{key}={literal(value)}" if separator and is_text(node, key.lstrip("+")) else word)
    return result


def offer(own: OwnFiles) -> None:
    """Make the placeholders of the user's files choices of their groups."""
    for choice, content in own.placeholders().items():
        for group in GROUPS:
            ConfigStore.instance().store(name=choice, node=content, group=group)
