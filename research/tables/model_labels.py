"""Measured times of whole models by sitar-lab/NeuSight (MIT), their nodes', and what others predicted for them.

A label is one pass of a model: torch 2.1 eager, float32 without TF32, one GPU unless the variant states more (dp4, tp4,
pp4_1: four ranks). Inference is a forward pass; training a forward pass with dropout and a backward pass that adds to
the gradients of the pass before (`bwall`). No loss, no optimizer. `fusion` is torch.compile. Milliseconds upstream.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from gnnperf.core import InputError
from research.tables.columns import US_PER_MS

ROOT = "sitar-lab+NeuSight/scripts/asplos"
RUN = re.compile(r"(?P<model>.+)-(?P<kind>train|inf)-(?P<length>\d+)-(?P<batch>\d+)(?:-(?P<variant>.+))?")
LAYER_KEYS = ("n_layer", "num_hidden_layers", "num_layers")
# Folder of predictions -> whose. micro: a regression on FLOPs (Li et al., MICRO 2023).
PEERS = {"neusight": "NeuSight", "roofline": "roofline", "habitat": "Habitat", "micro": "Li et al."}


@dataclass(frozen=True)
class ModelRun:
    """What was run."""

    name: str  # of its files
    model: str  # e.g. bert_large.
    training: bool  # forward and backward; else forward by itself
    length: int  # tokens of a sequence
    batch: int  # sequences
    variant: str  # "" one GPU and eager; else fusion, or how many ranks share the work


@dataclass(frozen=True)
class ModelLabel:
    """One measured run."""

    run: ModelRun  # what
    device: str  # name of the GPU as a driver gives it
    total_us: float  # of all passes


def run_of(name: str) -> ModelRun:
    """A run from the name of its files; refuses another kind of name."""
    result = RUN.fullmatch(name)
    if result is None:
        raise InputError(f"run {name!r}", where="NeuSight", allowed="MODEL-train-LENGTH-BATCH, MODEL-inf-LENGTH-BATCH")
    return ModelRun(name, result["model"], result["kind"] == "train", int(result["length"]), int(result["batch"]),
                    result["variant"] or "")  # fmt: skip


def read_model_labels(mirror: Path) -> tuple[ModelLabel, ...]:
    """All labels of a mirror, by device and run."""
    labels = []
    for path in sorted(mirror.glob(f"{ROOT}/label/*/*.json")):
        raw, device = _json(path), path.parent.name.replace("_", " ")
        labels.append(ModelLabel(run_of(path.stem), device, _us(raw, "e2e_latency", path)))
    return tuple(labels)


def operator_list_path(mirror: Path, run: ModelRun) -> Path:
    """Where the operators of a run are listed; there may be no such file."""
    return mirror / ROOT / "results" / "opgraph" / f"{run.name}.csv"


def layers_of(mirror: Path, model: str) -> int:
    """Layers of a model, from its configuration."""
    path = mirror / ROOT / "data" / "DLmodel_configs" / f"{model}.json"
    if not path.is_file():
        raise InputError(f"no configuration of {model!r}", where=str(path.parent), remedy="fetch kind op-graphs")
    raw = _json(path)
    result = next((raw[key] for key in LAYER_KEYS if isinstance(raw.get(key), int)), None)
    if not isinstance(result, int):
        raise InputError("no number of layers", where=str(path), allowed=", ".join(LAYER_KEYS))
    return result


def peer_us(mirror: Path, label: ModelLabel, peer: str) -> float:
    """What a peer predicted for the whole run; NaN: nothing."""
    path = _prediction(mirror, label, peer, "json")
    return _us(_json(path), "e2e_latency", path) if path.is_file() else float("nan")


def node_times(mirror: Path, label: ModelLabel) -> pd.DataFrame | None:
    """[num_nodes] measured times of the nodes of a run, `forward_us` and `backward_us` by name; None: not measured.

    Each between two events of its own, so that a host gap is in what is short.
    """
    return _nodes(mirror / ROOT / "label" / label.device.replace(" ", "_") / f"{label.run.name}.csv")


def peer_node_times(mirror: Path, label: ModelLabel, peer: str) -> pd.DataFrame | None:
    """The same as a peer predicted it."""
    return _nodes(_prediction(mirror, label, peer, "csv"))


def _prediction(mirror: Path, label: ModelLabel, peer: str, suffix: str) -> Path:
    folder = mirror / ROOT / "results" / "prediction" / label.device.replace(" ", "_") / peer
    return folder / f"{label.run.name}.{suffix}"


def _nodes(path: Path) -> pd.DataFrame | None:
    if not path.is_file():
        return None
    result = pd.read_csv(path, usecols=["Name", "fw_latency", "bw_latency", "acc_latency"]).set_index("Name")
    times = {"forward_us": result["fw_latency"], "backward_us": result["bw_latency"] + result["acc_latency"]}
    return pd.DataFrame(times) * US_PER_MS


def _json(path: Path) -> dict[str, object]:
    result = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(result, dict):
        raise InputError("is not a mapping of names to values", where=str(path))
    return result


def _us(raw: dict[str, object], key: str, path: Path) -> float:
    result = raw.get(key)
    if isinstance(result, bool) or not isinstance(result, int | float) or not 0 <= result < float("inf"):
        raise InputError(f"{key} is {result!r}", where=str(path), allowed="a number from 0 up, in ms")
    return float(result) * US_PER_MS
