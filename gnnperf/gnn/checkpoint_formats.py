"""Checkpoint files that predict.py and train.py take: those of train.py, and formats that other distributions read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from gnnperf.core import RESEARCH, InputError, load_plugin, plugin_names
from gnnperf.gnn.checkpoint import FORMAT, OURS, Checkpoint, checkpoint_from
from gnnperf.gnn.models.stored import StoredFile, read_stored
from gnnperf.graph import Predictor

if TYPE_CHECKING:
    from gnnperf.gnn.finetune import Start

GROUP = "gnnperf.checkpoint_formats"


class ExternalCheckpoint(Protocol):
    """A checkpoint of another format. It has learned nothing of hosts and has no intervals."""

    format: ClassVar[str]  # value of the key `format` of its files

    @classmethod
    def load(cls, stored: StoredFile) -> ExternalCheckpoint:
        """The checkpoint in a file of this format.

        Raises:
            InputError: another schema, or damaged.
        """
        ...

    @property
    def sha256(self) -> str:
        """Of the file."""
        ...

    def predictor(self, mode: str) -> Predictor:
        """Predicts in this mode (a gnnperf.predict.request.Mode)."""
        ...

    def start(self, where: str) -> Start:
        """Initial weights of a training.

        Args:
            where: the file, for messages.
        """
        ...


def read_checkpoint(path: Path) -> Checkpoint | ExternalCheckpoint:
    """The checkpoint in a file, which is read once.

    Raises:
        InputError: no such file, of no format that is installed, of another schema, or damaged.
    """
    stored = read_stored(path, OURS)
    if stored.format == FORMAT:
        return checkpoint_from(stored)
    for name in plugin_names(GROUP):
        kind: type[ExternalCheckpoint] = load_plugin(GROUP, name, str(path))
        if kind.format == stored.format:
            return kind.load(stored)
    remedy = RESEARCH if stored.format.startswith("gnnperf") else ""
    raise InputError(f"not a {FORMAT}", where=str(path), allowed=OURS, remedy=remedy)
