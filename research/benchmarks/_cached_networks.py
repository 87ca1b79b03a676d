"""Networks that benchmarks train on splits of their own, kept as checkpoints: looked at again without training."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from gnnperf.gnn import build_model, fit, keep_what_helps
from gnnperf.gnn.checkpoint import SCHEMA_VERSION, Checkpoint, load_checkpoint, make_checkpoint, save_checkpoint
from gnnperf.gnn.data.cache import code_of, content_digest, fingerprint
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.data.splits import Split
from research.baselines.network import Network, TrainedNetwork

FILE = "checkpoint.pt"


def cached_network(
    folder: Path, network: Network, split: Split, seed: int, data: Callable[[], PreparedData]
) -> Checkpoint:
    """The network of a split, settings and seed: the one that is there, else trained, gated and kept.

    A training that was killed goes on after its last whole epoch.
    """
    path = folder / _name(network, split, seed) / FILE
    return load_checkpoint(path) if path.is_file() else _trained(path, network, seed, data())


def _name(network: Network, split: Split, seed: int) -> str:
    """<axis>-<seed>-<hash of settings, names of runs, the checkpoint's schema, and the code of features and bases>.

    Other code that learns, or other files under the same names, are given, not noticed: delete the folder.
    """
    return f"{split.axis}-{seed}-{fingerprint(network, split, SCHEMA_VERSION)[:12]}"


def _trained(path: Path, network: Network, seed: int, data: PreparedData) -> Checkpoint:
    """Trained and gated, unless it is there; one process trains, others that ask for the same file wait for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.is_file():
            config = replace(network.config, seed=seed, out=str(path.parent), resume="auto")
            trained = fit(config, data, build_model(config, data))
            retained = keep_what_helps(trained, data)
            save_checkpoint(path, make_checkpoint(trained, config.model, data, {"seed": seed, "kept": retained}))
    return load_checkpoint(path)


@dataclass(frozen=True)
class CachedNetwork:
    """The network as a row that is trained once for what it learns from, and goes on where it was killed.

    Attributes:
        network: its configuration.
        folder: of the networks, by training data, settings, seed and the code that learns.
    """

    network: Network
    folder: Path = field(repr=False)

    def fit(self, data: PreparedData, seed: int) -> TrainedNetwork:
        """Trained and gated, or as it was kept."""
        return TrainedNetwork(self.checkpoint(data, seed).network())

    def checkpoint(self, data: PreparedData, seed: int) -> Checkpoint:
        """The same with all that it needs to answer; how far it is trusted, as it was given when it was trained."""
        given = (data.training_fingerprint, repr(self.network), code_of("gnn/models", "gnn/training"), SCHEMA_VERSION)
        path = self.folder / f"{seed}-{content_digest(*given)[:12]}" / FILE  # no axis: two may train on the same
        return _trained(path, self.network, seed, data)


def dealt(sizes: Mapping[str, tuple[str, float]], parts: int) -> list[tuple[str, ...]]:
    """Groups dealt out: each kind evenly, the largest group first, to the part that has least of its kind."""
    held: list[list[str]] = [[] for _ in range(parts)]
    total = np.zeros(parts)
    for kind in sorted({kind for kind, _ in sizes.values()}):
        own = np.zeros(parts)
        for group in sorted((g for g, (k, _) in sizes.items() if k == kind), key=lambda g: (-sizes[g][1], g)):
            part = int(np.lexsort((total, own))[0])
            held[part].append(group)
            own[part] += sizes[group][1]
            total[part] += sizes[group][1]
    return [tuple(part) for part in held]
