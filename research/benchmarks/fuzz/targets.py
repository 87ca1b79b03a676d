"""What reads each kind of input: file name, bytes of a case, and the product's own function."""

import importlib
import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from research.benchmarks.fuzz import corpus
from research.benchmarks.fuzz.mutations import mutated_value


@dataclass(frozen=True)
class Target:
    """A reader under test."""

    file: str
    make: corpus.Make
    read: Callable[[Path], object]


def _reader(module: str, name: str, *more: Any) -> Callable[[Path], object]:
    """A function of the product, imported when its first case runs."""
    return lambda path: getattr(importlib.import_module(module), name)(path, *more)


_run = _reader("gnnperf.trace", "read_run")
_cluster = _reader("gnnperf.hardware", "load_cluster", "h100_sxm")
_collectives = _reader("gnnperf.analytic.collective.constants", "load_collectives")
_checkpoint = _reader("gnnperf.gnn.checkpoint", "load_checkpoint")


def _with_execution_trace(path: Path) -> object:
    kineto = path.with_name("rank_0.json")
    if not kineto.exists():
        kineto.write_text(json.dumps(corpus.kineto()))
    return _run(path.parent)


def _card(path: Path) -> object:
    from gnnperf.hardware import placement_of
    from gnnperf.trace import read_card

    return placement_of(read_card(path.parent))


def _split(path: Path) -> object:
    from gnnperf.gnn.data.splits import read_split

    for name in ("a/1", "b/1", "c/1", "d/1"):
        (path.parent / name).mkdir(parents=True, exist_ok=True)
    return read_split(path.parent, "run")


def _against(path: Path) -> object:
    from gnnperf.report import read_threshold

    return read_threshold(None, 5.0, str(path))


def _plan(path: Path) -> object:
    from gnnperf.generate import read_plan
    from gnnperf.hardware import read_yaml

    return read_plan(read_yaml(path), "plan")


def _edits(path: Path) -> object:
    from gnnperf.predict.whatif import read_edits

    try:
        entries = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None  # these words come from a command line, which Hydra parses
    return read_edits(entries if isinstance(entries, list) else [entries])


def predicted_step(path: Path, rng: random.Random) -> float:
    """The whole path: trace -> graph -> prediction -> schedule -> document, with edits now and then."""
    from gnnperf.core import to_json
    from gnnperf.predict import Mode
    from gnnperf.predict.api import Request, predict
    from gnnperf.predict.whatif import read_edits
    from gnnperf.report import document

    entries = [rng.choice(corpus.EDITS) for _ in range(rng.choice((0, 1, 1, 2)))]
    if entries and rng.random() < 0.3:
        entries = [mutated_value(entry, rng, 1) for entry in entries]
    edits = read_edits(entries)
    estimate = predict(Request(trace=path, mode=Mode.analytic, whatif=list(edits), findings=rng.random() < 0.1))
    written = json.loads(to_json(document(estimate)))
    steps = [written["step_time_us"], *([written["whatif"]["step_time_us"]] if written.get("whatif") else [])]
    for step_us in steps:
        if step_us is None or not math.isfinite(step_us) or step_us <= 0:
            raise AssertionError(f"step time {step_us}")
    return float(steps[0])


TARGETS = {
    "kineto": Target("rank_0.json", corpus.kineto_bytes, _run),
    "nsight": Target("rank_0.sqlite", corpus.nsight_bytes, _run),
    "execution_trace": Target("rank_0_et.json", corpus.execution_trace, _with_execution_trace),
    "zip": Target("run.zip", corpus.zip_bytes, _run),
    "tar": Target("run.tar", corpus.tar_bytes, _run),
    "tables": Target("events.parquet", corpus.table_bytes, _reader("gnnperf.trace.storage", "read_tables")),
    "card": Target("run.json", corpus.of_value(corpus.CARD), _card),
    "splits": Target("splits.json", corpus.of_value(corpus.SPLITS), _split),
    "op_rows": Target("ops.jsonl", corpus.op_rows, _reader("gnnperf.analytic", "read_op_rows")),
    "ops_to_measure": Target("ops.jsonl", corpus.op_rows, _reader("gnnperf.record.calibrate.ops_file", "read_ops")),
    "against": Target("prediction.json", corpus.of_value(corpus.PREDICTION), _against),
    "device": Target("device.yaml", corpus.yaml_of("hardware", "t4"), _reader("gnnperf.hardware", "load_device")),
    "cluster": Target("cluster.yaml", corpus.yaml_of("cluster", "hgx8"), _cluster),
    "plan": Target("plan.yaml", corpus.yaml_of("plan", "gpt2_345m"), _plan),
    "collectives": Target(
        "collectives.yaml", corpus.yaml_of("analytic/collective_models", "h100_sxm_nccl_2_29"), _collectives
    ),
    "edits": Target("whatif.json", corpus.of_value(list(corpus.EDITS)), _edits),
    "checkpoint": Target("checkpoint.pt", corpus.checkpoint_bytes, _checkpoint),
}
WHOLE_PATH = "whole_path"
