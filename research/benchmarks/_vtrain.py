"""vTrain's validation on one node: 1,440 configurations of Megatron-LM and how long an iteration took.

A configuration (JSON) becomes a plan; its measured time is the row of the table with the same columns.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.generate.transformer.plan import (
    Parallelism,
    Pipeline,
    Recompute,
    Reduction,
    Schedule,
    Transformer,
    TransformerPlan,
)

FOLDER = "VIA-Research+vTrain"
COLUMNS = ("gpus", "global_batch", "micro_batch", "hidden", "heads", "layers", "sequence", "tensor", "data", "pipeline",
           "iteration_ms")  # fmt: skip
CONFIG_COLUMNS = COLUMNS[:-1]
RECOMPUTE = {True: Recompute.FULL, False: Recompute.NONE}
REDUCTION = {True: Reduction.BUCKETS, False: Reduction.AT_END}


def configurations(mirror: Path) -> list[TransformerPlan]:
    """One plan per configuration, in the order of their files.

    The vocabulary is the default of upstream's configuration; its weights are float16 (src/predictor.py sets torch's
    default dtype), which for Megatron-LM means sums of gradients in float16 as well.
    """
    files = sorted(mirror.glob(f"{FOLDER}/config/validation/single/*.json"))
    if not files:
        sys.exit("no configurations of VIA-Research/vTrain: set GNNPERF_DATA_MIRROR to a folder that holds them")
    return [plan_of(json.loads(path.read_text(encoding="utf-8")), path.stem) for path in files]


def plan_of(raw: dict[str, object], name: str) -> TransformerPlan:
    """The plan of one of vTrain's configurations."""
    number = {key: int(value) for key, value in raw.items() if isinstance(value, int)}
    return TransformerPlan(
        name,
        Transformer(number["num_layers"], number["hidden_size"], number["num_attention_heads"], number["max_length"]),
        Parallelism(number["tensor_parallel_size"], number["pipeline_parallel_size"], number["data_parallel_size"]),
        Schedule(
            number["global_batch_size"],
            number["micro_batch_size"],
            Pipeline(str(raw["pipeline_scheduling"])),
            recompute=RECOMPUTE[bool(raw["use_checkpoint"])],
            reduction=REDUCTION[bool(raw["use_gradient_bucket"])],
        ),
    )


def columns_of(plans: list[TransformerPlan]) -> pd.DataFrame:
    """[n] the configuration columns of plans, named as in the table of iteration times."""
    rows = [
        (p.parallelism.world_size, p.schedule.global_batch, p.schedule.micro_batch, p.model.hidden, p.model.heads,
         p.model.layers, p.model.sequence, p.parallelism.tensor, p.parallelism.data, p.parallelism.pipeline)
        for p in plans
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(CONFIG_COLUMNS))


def iteration_us(mirror: Path, plans: list[TransformerPlan]) -> np.ndarray:
    """[n] measured time of each plan: labels, of which predictions know nothing."""
    table = pd.read_csv(mirror / FOLDER / "data/ground_truth_single.csv", encoding="utf-8-sig", header=0, names=COLUMNS)
    if table.duplicated(list(CONFIG_COLUMNS)).any():
        sys.exit("ground_truth_single.csv has a configuration twice")
    result = columns_of(plans).merge(table, on=list(CONFIG_COLUMNS), how="left", validate="one_to_one")
    if result["iteration_ms"].isna().any():
        sys.exit("ground_truth_single.csv has no time for some configuration")
    return result["iteration_ms"].to_numpy(float) * 1e3
