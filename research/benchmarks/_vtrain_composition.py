"""What vTrain's iteration times are made of: whether 1,440 runs were measured, or few numbers put together.

Two signs. A measured time repeats to a per mille at best; times that a closed formula makes agree with it to the last
digit. And what a second replica adds to a step is measured anew in every run; if it was looked up, it is an entry of
the table of all-reduces, which was measured elsewhere (nccl-tests).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.generate.transformer.update import layer_parameters
from research.benchmarks._vtrain import FOLDER, columns_of

TABLE = "trace/a100/AR_GPU{}_1M_1024M_LUT"
IN_PLACE = -2  # the column that holds ns of the second kind of run
BUS_BANDWIDTH = -1  # GB/s of the same
LARGEST_MIB = 1024
MIB = 1 << 20
SAME_US = 1.0  # labels have digits down to 0.001 us


@dataclass(frozen=True)
class Composition:
    """How far the labels are explained without a run.

    Attributes:
        numbers: that explain all of them.
        mean_error, max_error: relative, of steps that are put together from these numbers.
        slope_spread: largest relative difference between the times of one layer and micro-batch at other pipeline and
            data sizes, which would differ if they had been measured.
        doubled: pairs of times of one layer, one of twice the other's micro-batch.
        shorter: of these, where more work takes less time.
        most_shorter: the largest share by which it does.
        replicas: distinct cases of what two or four replicas add to a step.
        looked_up: of these, how many are within SAME_US of the table's entry.
        out_of_range: of these, messages larger than the table; their time is the size over the last entry's bus
            bandwidth, which leaves out that all-reduces move 2 (n - 1) / n of it.
    """

    numbers: int
    mean_error: float
    max_error: float
    slope_spread: float
    doubled: int
    shorter: int
    most_shorter: float
    replicas: int
    looked_up: int
    out_of_range: int


def composition(mirror: Path, plans: list[TransformerPlan], measured_us: np.ndarray) -> Composition:
    """Of all labels; reads them."""
    table = columns_of(plans).assign(us=measured_us, count=[plan.num_micro_batches for plan in plans])
    errors, slopes = [], []
    for key, rows in table.groupby(["tensor", "hidden", "micro_batch", "pipeline", "data"]):
        fitted, missed = _fitted(rows)
        errors.append(missed)
        if len(rows["count"].unique()) > 1:  # else a slope per layer cannot be determined from the rest
            slopes.append((*key[:3], fitted[0]))
    by_layer = pd.DataFrame(slopes, columns=["tensor", "hidden", "micro_batch", "us"])
    spread = by_layer.groupby(["tensor", "hidden", "micro_batch"])["us"].agg(lambda us: us.max() / us.min() - 1)
    missed = np.abs(np.concatenate(errors))
    growth = _growth(by_layer)
    added = _replicas(table.assign(place=np.arange(len(plans))))
    replicated = [(plans[place], us) for place, us in added]
    looked = [abs(us - _table_us(mirror, plan)) < SAME_US for plan, us in replicated]
    out_of_range = [_message_mib(plan) > LARGEST_MIB for plan, _ in replicated]
    return Composition(4 * len(errors), float(missed.mean()), float(missed.max()), float(spread.max()), len(growth),
                       int((growth < 1).sum()), float(1 - growth.min()), len(added),
                       sum(looked), sum(b and hit for b, hit in zip(out_of_range, looked, strict=True)))  # fmt: skip


def _growth(by_layer: pd.DataFrame) -> np.ndarray:
    """[num_pairs] time of a layer over that of the same layer with half the micro-batch."""
    table = by_layer.pivot_table(index=["tensor", "hidden"], columns="micro_batch", values="us", aggfunc="median")
    sizes = [size for size in by_layer["micro_batch"].unique() if 2 * size in table]
    return np.concatenate([(table[2 * size] / table[size]).to_numpy() for size in sizes])


def _fitted(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Four numbers of one kind (per layer and micro-batch, per micro-batch, per layer, once), relative errors [n]."""
    layers = (rows["layers"] / rows["pipeline"]).to_numpy(float)
    passes = (rows["count"] + rows["pipeline"] - 1).to_numpy(float)  # through a stage, the pipeline's bubble included
    us = rows["us"].to_numpy()
    terms = np.stack([passes * layers, passes, layers, np.ones(len(rows))], axis=1) / us[:, None]
    result = np.linalg.lstsq(terms, np.ones(len(rows)), rcond=None)[0]
    return result, terms @ result - 1


def _replicas(table: pd.DataFrame) -> list[tuple[int, float]]:
    """The place of a plan with two or four replicas, and us that it takes longer than one of as many micro-batches."""
    same = ["tensor", "pipeline", "hidden", "layers", "micro_batch", "count"]
    isolated = table[table["data"] == 1].set_index(same)["us"]
    several = table[table["data"].isin([2, 4])].set_index(same)
    joined = several.join(isolated.rename("alone"), how="inner").reset_index()
    added = joined.assign(added=joined["us"] - joined["alone"])
    kinds = added.groupby(["tensor", "pipeline", "hidden", "layers", "data"])
    return [(int(rows["place"].iloc[0]), float(rows["added"].median())) for _, rows in kinds]


def _message_mib(plan: TransformerPlan) -> int:
    """Gradients of the first stage: its layers, positions, the embedding and, if it is the last one too, its copy.

    The vocabulary is not padded (upstream's src/predictor.py).
    """
    model, ways = plan.model, plan.parallelism
    rows = model.vocabulary // ways.tensor * (2 if ways.pipeline == 1 else 1) + model.sequence
    parameters = plan.layers_per_chunk * layer_parameters(plan) + rows * model.hidden
    return round(2 * parameters / MIB)


def _table_us(mirror: Path, plan: TransformerPlan) -> float:
    """What upstream's table says for the message of a plan."""
    table = pd.read_csv(mirror / FOLDER / TABLE.format(plan.parallelism.data))
    size = _message_mib(plan)
    if size > LARGEST_MIB:
        return float(size / (table.iloc[:, BUS_BANDWIDTH].to_numpy(float)[-1] * 1024) * 1e6)
    return float(table.iloc[:, IN_PLACE].to_numpy(float)[size - 1] / 1e3)
