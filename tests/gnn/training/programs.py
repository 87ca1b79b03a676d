"""train.py on the made-up data set, as a program of its own, and what it is given, for training within a test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gnnperf.gnn.models.message_passing import ModelConfig
from gnnperf.gnn.training.config import TrainConfig, TrainerConfig

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("trainer.progress_bar=false", "model.hidden_channels=8", "data.batch_size=2", "trainer.max_epochs=4")

TRAIN = """\
import sys
sys.path[:0] = [{root!r}, {root!r} + "/tests"]
from pathlib import Path
import gnnperf.gnn.data.prepare
from synthetic import prepared
gnnperf.gnn.data.prepare.load_data = lambda *_: prepared(Path({cache!r}))
{before}
import train
train.main()
"""

ENDED_IN_EPOCH_2 = """\
import os, signal
from gnnperf.gnn.training.module import LatencyModule
def ended(self, batch, batch_idx):
    if (self.current_epoch, batch_idx) == (2, 0):
        os.kill(os.getpid(), signal.{signal})
LatencyModule.on_train_batch_end = lambda self, outputs, batch, batch_idx: ended(self, batch, batch_idx)
"""


def small(out: Path, **changes: object) -> TrainConfig:
    """The configuration that SMALL makes."""
    made = TrainConfig(
        out=str(out),
        model=ModelConfig(hidden_channels=8),
        trainer=TrainerConfig(progress_bar=False, max_epochs=4),
        **changes,  # type: ignore[arg-type]
    )
    made.data.batch_size = 2
    return made


def program(folder: Path, before: str = "") -> Path:
    """A script that trains; `before` runs first."""
    path = folder / "program.py"
    path.write_text(TRAIN.format(root=str(ROOT), cache=str(folder / "cache"), before=before))
    return path


def run(*command: object, overrides: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    words = [sys.executable, *map(str, command), *SMALL, *overrides]
    return subprocess.run(words, capture_output=True, text=True, timeout=100)
