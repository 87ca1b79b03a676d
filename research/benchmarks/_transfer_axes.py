"""Other axes of `research.benchmarks.transfer`: an unseen dtype or software on GPUs of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from gnnperf.gnn.training.config import PretrainConfig
from research.benchmarks._products import peak_flops_per_s, scaled_neighbor_us
from research.benchmarks._public_runs import mirror
from research.benchmarks._transfer_tables import Judged, judged, line
from research.pretraining.fit import BY_SIZE, OWN, VIEWS, OpModel, fit, prepare
from research.pretraining.forms import shipped_forms
from research.pretraining.rows import spec_of, usable
from research.tables import joined, read_aiconfigurator, read_estimate_train_time, read_vidur

SHAPE = ["m", "n", "k"]
TRAINED, LEFT_OUT = "bfloat16", "float8"
BY_SIZE_SHARE = 0.5  # of corrections, as the products of a GPU that no one trained on keep them
SEED = 0
OWN_CONFIG = PretrainConfig(steps=1000, rows_per_group=2000)
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


def dtype(header: str) -> None:
    """Products: trained on bfloat16, judged on float8."""
    rows = usable(read_aiconfigurator(mirror(), ("fp8",))).rows
    known, models = _trained()
    print(f"\nproducts, trained on {TRAINED}, judged on {LEFT_OUT}; seed {SEED}\n\n{header}")
    for one in judged(rows):
        _judge(one, f"{one.device}, {LEFT_OUT}", models, lambda requested: as_other_dtype(requested, known))


def software(header: str) -> None:
    """Products in 16 bits: trained on aiconfigurator's (SGLang 0.5.10, CUDA graphs), judged on others' campaigns."""
    others = usable(joined([read_vidur(mirror()), read_estimate_train_time(mirror())])).rows
    known, models = _trained()
    print(f"\nproducts in 16 bits, trained on one software, judged on others; seed {SEED}\n\n{header}")
    for source, part in others[others["k"].notna()].groupby("source"):
        for one in judged(part):
            _judge(one, f"{one.device}, {source}", models, lambda requested: as_other_software(requested, known))


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


@cache
def _trained() -> tuple[pd.DataFrame, Trained]:
    """aiconfigurator's rows in the dtype that trains, and the networks that both parts judge.

    The constants that ship are of these rows as well, and of nothing that is judged here.
    """
    known = usable(read_aiconfigurator(mirror(), (TRAINED,))).rows

    def network(view: tuple[str, ...], config: PretrainConfig) -> OpModel:
        return fit(prepare(known, shipped_forms(), config), view, config, SEED)

    by_size = network(VIEWS[BY_SIZE], PretrainConfig()).with_share(BY_SIZE_SHARE)
    return known, Trained(network(OWN, OWN_CONFIG), by_size)


def _judge(one: Judged, label: str, models: Trained, trivial: Callable[[Judged], Answers]) -> None:
    encoded, truth = models.own.encode(one.rows), one.rows["latency_us"].to_numpy(float)
    line(label, {
        **trivial(one),
        "closed forms": np.exp(models.own.with_share(0.0).log_us(encoded)),
        SIZE_NETWORK: np.exp(models.by_size.log_us(models.by_size.encode(one.rows))),
        OWN_NETWORK: np.exp(models.own.log_us(encoded)),
    }, truth)  # fmt: skip
