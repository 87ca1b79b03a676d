"""Training on op tables: the network's residual, seen through the measuring method, against the label, in log space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gnnperf.core import each
from gnnperf.gnn import TypedGNN
from gnnperf.gnn.data.normalizer import Normalizer
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.vocabulary import Vocabulary
from gnnperf.gnn.training.config import PretrainConfig
from gnnperf.gnn.training.module import learning_rate_share
from research.pretraining.encode import COMPUTE, EncodedRows, encode, fit_row_normalizer, words_of
from research.pretraining.forms import FormConstants
from research.pretraining.observation import Observation, fit_observation
from research.pretraining.rows import sampled

SEED_STRIDE = 1_000_003
GRADIENT_CLIP = 1.0
CHUNK = 8192  # rows that are answered at a time

# Features that a network does not see: as they stand in traces; of one isolated op they say nothing, or which table a
# row is from.
HARDWARE = ("log_flops_per_sm", "log_bandwidth_per_sm", "log_cache_per_sm", "log_num_sms")
PLACES = (
    "log_world_size", "log_ranks_per_node", "log_host_speed", "log_link_bytes_per_s", "log_link_latency_us",
)  # fmt: skip

OWN = PLACES  # of networks for GPUs that trained
OTHERS = (*HARDWARE, *PLACES)  # of networks for all others: ratios and sizes transfer, numbers of few GPUs do not
assert set(OTHERS) <= set(WORK_NAMES)


@dataclass(frozen=True)
class Prepared:
    """What is fitted on training rows before the network.

    Attributes:
        vocabulary: words of the training rows.
        constants: of the base.
        observation: of the measuring methods.
        train: the rows that train.
        weight: [n] of each of them: every device and op counts the same.
    """

    vocabulary: Vocabulary
    constants: FormConstants
    observation: Observation
    train: EncodedRows
    weight: Tensor


@dataclass(frozen=True)
class OpModel:
    """A trained network, and what its answers stand on.

    Attributes:
        network: in evaluation mode.
        normalizer: of the training rows.
        prepared: words, base and waits.
    """

    network: TypedGNN
    normalizer: Normalizer
    prepared: Prepared

    def encode(self, rows: pd.DataFrame) -> EncodedRows:
        """Rows of research.pretraining.rows.usable as this model takes them."""
        return encode(rows, self.prepared.vocabulary, self.prepared.constants, self.prepared.observation)

    def residual(self, rows: EncodedRows) -> Tensor:
        """[n] log(device latency / base)."""
        return residuals(self.network, self.normalizer, rows)

    def log_us(self, rows: EncodedRows) -> np.ndarray:
        """[n] log us that the rows' methods read."""
        return rows.log_us(self.residual(rows)).numpy()


def residuals(network: TypedGNN, normalizer: Normalizer, rows: EncodedRows) -> Tensor:
    """[n] float64 log(device latency / base), as a trained network has it."""
    with torch.no_grad():
        parts = [
            network(normalizer.apply(rows.part(places).data()))[COMPUTE].residual
            for places in torch.arange(len(rows.base_us)).split(CHUNK)
        ]
    return torch.cat([*parts, torch.zeros(0)]).double()


def prepare(rows: pd.DataFrame, constants: FormConstants, config: PretrainConfig) -> Prepared:
    """Everything that training rows tell before a network."""
    groups = ["device", "op"]
    some = rows.iloc[sampled(rows, config.rows_per_group, groups, seed=0)].reset_index(drop=True)
    observation, vocabulary = fit_observation(rows, constants), words_of(some)
    count = some.groupby(groups)["latency_us"].transform("size").to_numpy(float)  # [n]
    weight = torch.from_numpy(len(count) / count / (1.0 / count).sum()).float()  # mean 1
    return Prepared(vocabulary, constants, observation, encode(some, vocabulary, constants, observation), weight)


def fit(prepared: Prepared, dropped: tuple[str, ...], config: PretrainConfig, seed: int) -> OpModel:
    """Train one network; the same seed gives the same bits.

    Args:
        prepared: of the training rows.
        dropped: features that it is not shown (OWN, OTHERS).
        config: how.
        seed: of weights, order and dropout.
    """
    normalizer = fit_row_normalizer(prepared.train, dropped)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = TypedGNN(config.model, prepared.vocabulary)
        _descend(network, normalizer, prepared, config, seed)
    return OpModel(network.eval(), normalizer, prepared)


def _descend(network: TypedGNN, normalizer: Normalizer, prepared: Prepared, config: PretrainConfig, seed: int) -> None:
    rate = config.learning_rate
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=config.weight_decay, fused=True)
    network.train()
    for step, places in enumerate(each(_batches(len(prepared.weight), config, seed), "training on rows", "batches")):
        torch.manual_seed(seed * SEED_STRIDE + step)  # dropout
        for group in optimizer.param_groups:
            group["lr"] = rate * learning_rate_share(step, config.steps, 0.05)
        rows = prepared.train.part(places)
        answers: Mapping = network(normalizer.apply(rows.data()))
        off = rows.log_us(answers[COMPUTE].residual.double()) - rows.log_label  # [batch]
        errors = torch.nn.functional.huber_loss(off, torch.zeros_like(off), reduction="none", delta=config.huber_delta)
        loss = (errors * prepared.weight[places]).mean() / config.huber_delta
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), GRADIENT_CLIP)
        optimizer.step()


def _batches(num_rows: int, config: PretrainConfig, seed: int) -> list[Tensor]:
    """`config.steps` batches of places: every row once per epoch, in an order of its own."""
    size = min(config.rows_per_step, num_rows)
    generator = torch.Generator().manual_seed(seed)
    left, batches = torch.empty(0, dtype=torch.int64), []
    for _ in range(config.steps):
        if len(left) < size:
            left = torch.randperm(num_rows, generator=generator)
        batches.append(left[:size])
        left = left[size:]
    return batches
