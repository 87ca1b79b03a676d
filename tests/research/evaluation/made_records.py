"""Cells of three runs with one or two nodes, by hand."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from research.evaluation.records import EvaluationRecord, Origin, write_record

RUNS = ("a", "b", "c")
WORKLOADS = ("dlrm", "dlrm", "transformer")


def made(
    row: str = "gnn", errors: Sequence[float] = (0.1, 0.2, 0.4), *, seed: int | None = 0, split: str = "size",
    nodes: bool = True, **changes: object,
) -> EvaluationRecord:  # fmt: skip
    """Each run once recorded: one step of 1000 us and one node of 10 us, both too long by the run's error."""
    about: dict[str, object] = {"part": "test", "data": "d", "learner": row, "code": "c", **changes}
    factor = 1.0 + np.array(errors)
    steps = pd.DataFrame({"recording": [f"{r}/1" for r in RUNS], "run": RUNS, "workload": WORKLOADS,
                          "predicted_us": 1000.0 * factor, "measured_us": 1000.0})  # fmt: skip
    table = pd.DataFrame({"recording": np.arange(3, dtype=np.int32), "kind": pd.Categorical(["host"] * 3),
                          "predicted_us": np.float32(10.0 * factor), "measured_us": np.float32(10.0)})  # fmt: skip
    origin = Origin(split=split, row=row, seed=seed, **about)  # type: ignore[arg-type]
    return EvaluationRecord(origin, 1.5, 1.0 if nodes else float("nan"), steps, table if nodes else None)


def folder_of(path: Path, *records: EvaluationRecord) -> Path:
    """They are written there."""
    for record in records:
        write_record(record, path)
    return path
