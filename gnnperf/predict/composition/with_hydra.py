"""What Hydra composes, and what it runs."""

import functools
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
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

from gnnperf.core import InputError
from gnnperf.predict.composition import messages, one_message
from gnnperf.predict.composition.command_line import CONF_DIR, GROUPS, OWN, OwnFiles, escaped, literal, with_keys
from gnnperf.predict.composition.plain import OWN_FOLDER

ConfigT = TypeVar("ConfigT")
HELP = frozenset({"-h", "--help"})


def run_with_hydra(
    name: str, kind: type[ConfigT], flags: tuple[str, ...], task: Callable[[ConfigT], Any], given: list[str],
    own: OwnFiles, words: list[str],
) -> None:  # fmt: skip
    """Compose `words`, which name the files `own` where the user `given` paths, and run the task."""

    @functools.wraps(task)
    def job(raw: DictConfig) -> Any:
        with one_message(kind), nothing_left_if_refused():
            return task(to_typed(raw, kind, own))

    # by name, for all of the process: whoever composes last decides
    ConfigStore.instance().store(f"{name}_schema", kind)
    makes_folder = OWN_FOLDER not in (CONF_DIR / f"{name}.yaml").read_text(encoding="utf-8")
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


def composed_by_hydra(name: str, node: type[ConfigT], overrides: Sequence[str], values: Mapping[str, Any]) -> ConfigT:
    """See `composed`."""
    ConfigStore.instance().store(f"{name}_schema", node)
    own = OwnFiles()
    words = as_text(own.overrides(overrides), node)
    offer(own)
    raw = raw_config(name, words)
    for key, value in values.items():
        OmegaConf.update(raw, key, escaped(value), force_add=isinstance(value, Mapping))  # check_keys sees them all
    return to_typed(raw, node, own)


def refusal(error: Exception, node: type) -> InputError | None:
    """The message for what Hydra and OmegaConf raise; None: something else raised it."""
    if isinstance(error, MissingConfigException):
        return messages.missing_choice(error.missing_cfg_file, error.options, str(error))
    if isinstance(error, OverrideParseException):
        return messages.unreadable(error.override, error.message)
    if isinstance(error, HydraException | OmegaConfBaseException):
        return messages.explain(error, node)
    if isinstance(error, ValueError):  # hydra's own, e.g. for `model=3` where a choice is due
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).startswith("hydra."):
            return InputError(str(error).splitlines()[0], remedy=messages.REMEDY)
    return None


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
    messages.check_keys(raw, node)
    config: Any = OmegaConf.to_object(raw)
    for group in GROUPS:
        if getattr(config, group, None):
            setattr(config, group, own.inserted(getattr(config, group)))
    if hasattr(config, "out") and HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
        config.out = HydraConfig.get().runtime.output_dir
    return config


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
        messages.refuse_settings_of_list(node, key.lstrip("+~"), value)
        result.append(f"{key}={literal(value)}" if separator and messages.is_text(node, key.lstrip("+")) else word)
    return result


def offer(own: OwnFiles) -> None:
    """Make the placeholders of the user's files choices of their groups."""
    for number in range(len(own.contents)):
        for group in GROUPS:
            ConfigStore.instance().store(name=f"{OWN}_{number}", node={OWN: number}, group=group)
