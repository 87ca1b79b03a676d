"""Other axes of `benchmarks.transfer`: a dtype, and a software, that training never saw, on GPUs that it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks._products import peak_flops_per_s, scaled_neighbor_us
from benchmarks._public_runs import mirror
from benchmarks._transfer_tables import Judged, judged, line, same_gpu_trees_us
from gnnperf.pretrain.config import PretrainConfig, own_gpus
from gnnperf.pretrain.fit import OpModel, fit, prepare
from gnnperf.pretrain.kept_forms import kept_forms
from gnnperf.pretrain.rows import spec_of, usable
from gnnperf.pretrain.views import BY_SIZE, OWN, VIEWS
from gnnperf.tables import joined, read_aiconfigurator, read_estimate_train_time, read_vidur

SHAPE = ["m", "n", "k"]
TRAINED, LEFT_OUT = "bfloat16", "float8"
BY_SIZE_SHARE = 0.5  # of corrections, as the products of a GPU that nobody trained on keep them
SEED = 0
OWN_NETWORK, SIZE_NETWORK = "network, knows the GPU", f"network, ratios and sizes, {BY_SIZE_SHARE:g}"
Answers = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Trained:
    """Networks of the same rows.

    Attributes:
        own: sees numbers of the device.
        by_size: sees ratios and sizes.
    """

    own: OpModel
    by_size: OpModel


def dtype(kept: Path, header: str) -> None:
    """Products: trained on bfloat16, judged on float8."""
    rows = usable(read_aiconfigurator(mirror(), (TRAINED, "fp8"))).rows
    known = rows[rows["dtype"] == TRAINED].reset_index(drop=True)
    models = _trained(known, kept)
    print(f"\nproducts, trained on {TRAINED}, judged on {LEFT_OUT}; seed {SEED}\n\n{header}")
    for one in judged(rows[rows["dtype"] == LEFT_OUT]):
        _judge(one, f"{one.device}, {LEFT_OUT}", models, lambda asked: as_other_dtype(asked, known))


def software(kept: Path, header: str) -> None:
    """Products in 16 bits: trained on aiconfigurator's (SGLang 0.5.10, CUDA graphs), judged on others' campaigns."""
    known = usable(read_aiconfigurator(mirror())).rows
    others = usable(joined([read_vidur(mirror()), read_estimate_train_time(mirror())])).rows
    models = _trained(known, kept)
    print(f"\nproducts in 16 bits, trained on one software, judged on others; seed {SEED}\n\n{header}")
    for source, part in others[others["k"].notna()].groupby("source"):
        for one in judged(part):
            _judge(one, f"{one.device}, {source}", models, lambda asked: as_other_software(asked, known))


def as_other_dtype(one: Judged, known: pd.DataFrame) -> Answers:
    """The same product on the same GPU in the dtype that trained: as it is, and times the ratio of peaks."""
    there = known[known["device"] == one.device].drop_duplicates(SHAPE).set_index(SHAPE)["latency_us"]
    us = there.reindex(pd.MultiIndex.from_frame(one.rows[SHAPE])).to_numpy(float)
    device = spec_of(one.device)
    ratio = peak_flops_per_s(device, TRAINED) / peak_flops_per_s(device, str(one.rows["dtype"].iloc[0]))
    return {f"{TRAINED} as it is": us, f"{TRAINED} x peak": us * ratio}


def as_other_software(one: Judged, known: pd.DataFrame) -> Answers:
    """The most similar product that the other software ran on the same GPU, times the ratio of FLOPs."""
    return {"other software, similar product": scaled_neighbor_us(one.rows, known[known["device"] == one.device])}


def _trained(known: pd.DataFrame, kept: Path) -> Trained:
    constants = kept_forms(known, kept)

    def network(view: tuple[str, ...], config: PretrainConfig) -> OpModel:
        return fit(prepare(known, constants, config), view, config, SEED)

    return Trained(network(OWN, own_gpus()), network(VIEWS[BY_SIZE], PretrainConfig()).with_share(BY_SIZE_SHARE))


def _judge(one: Judged, label: str, models: Trained, trivial: Callable[[Judged], Answers]) -> None:
    encoded, truth = models.own.encode(one.rows), one.rows["latency_us"].to_numpy(float)
    answers = {
        **trivial(one),
        "closed forms": np.exp(models.own.with_share(0.0).log_us(encoded)),
        SIZE_NETWORK: np.exp(models.by_size.log_us(models.by_size.encode(one.rows))),
        OWN_NETWORK: np.exp(models.own.log_us(encoded)),
    }
    if len(one.pool):
        answers["same rows' other sizes, trees"] = same_gpu_trees_us(encoded, models.own.encode(one.pool))
    line(label, answers, truth)
