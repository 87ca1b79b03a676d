"""The log of a training run, and what it holds of a trained network apart from its curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from gnnperf.gnn.data.prepare import Step
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.training.config import LoggerKind, TrainConfig
from gnnperf.gnn.training.curves import FolderLog, Log
from gnnperf.gnn.training.plots import parity
from gnnperf.gnn.training.tables import errors_by, node_answers, sampled


def log_answers(
    log: Log, network: TypedGNN, val: Sequence[Step], comparison: Mapping[str, pd.DataFrame], sha256: str
) -> None:
    """Log what the network answers on the validation runs, how it compares, and which file holds it.

    Node by node only validation runs are shown: what is changed after a look at test runs was fitted on them.

    Args:
        log: where to.
        network: trained.
        val: steps of the validation runs.
        comparison: part -> every answer's errors (evaluate).
        sha256: of the checkpoint.
    """
    nodes = node_answers(network, val)
    sample = sampled(nodes)
    for keys in (("family", "node_type"), ("op_name", "node_type"), ("run",)):
        log.table(f"val_errors_by_{keys[0]}", errors_by(nodes, *keys))
    log.table("val_predictions", sample)
    log.figure("val_parity", parity(sample, "Node latencies of the validation runs"))
    for part, table in comparison.items():
        log.table(f"{part}_comparison", table)
    log.fact("checkpoint_sha256", sha256)


@contextmanager
def open_log(config: TrainConfig) -> Iterator[Log]:
    """The log that the configuration asks for, closed at the end: the next job of a multirun begins one of its own.

    Raises:
        InputError: wandb refuses.
    """
    if config.logger.kind is LoggerKind.csv:
        yield FolderLog(Path(config.out))
        return
    from gnnperf.gnn.training.wandb_logger import WandbLog  # starting wandb takes a second

    log = WandbLog(config)
    try:
        yield log
    except BaseException:
        log.close("failed")
        raise
    log.close("success")
