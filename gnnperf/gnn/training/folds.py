"""Which corrections hold in a program that training lacks, by networks that are trained without some programs.

Validation runs are of the training's programs: they choose what counts there. Another program is another question.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np

from gnnperf.core import Mapped, each, in_copy, in_turn
from gnnperf.gnn.data.floors import of_each
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.training.config import LoggerConfig, TrainConfig
from gnnperf.gnn.training.evaluate import may_copy, residuals_of
from gnnperf.gnn.training.fit import fit
from gnnperf.gnn.training.shares import MIN_GROUPS, Judged, scheduled_shares, usual_shares
from gnnperf.gnn.trust import NONE, Shares, program_of, trust_kinds

NUM_FOLDS = 4
RUNS_PER_PROGRAM = 8  # that are judged: schedules take longest
EPOCHS = 0.125  # of the training's, per fold


@contextmanager
def leaving_programs_out(
    config: TrainConfig, data: PreparedData, begin: Callable[[], TypedGNN]
) -> Iterator[Callable[[], list[Judged]]]:
    """What waits for predictions for steps of each program of the training, by networks that were trained without it.

    Each process of torchrun calls this. With more cores than one, one thread and no GPU, these networks train during
    the block, in a copy of the process. The base stays as fitted with all programs, which favors the base. `begin`
    makes a network as the training began with.
    """
    how = in_copy if may_copy(config) else nullcontext
    with how(lambda: _residuals(config, data, begin)) as residuals:
        yield lambda: [
            Judged(step, of_step, trust_kinds(step.nodes, step.stored("base_us")), program_of(step))
            for step, of_step in zip((step for fold in _folds(data) for step in fold[1]), residuals(), strict=True)
        ]


def _folds(data: PreparedData) -> list[tuple[tuple[str, ...], list[Step]]]:
    """Programs that are left out together, and their steps that are judged."""
    groups = grouped(Counter(program_of(step) for step in data.steps["train"]))
    runs = {program: [step for part in ("train", "val") for step in data.steps[part] if program_of(step) == program]
            for group in groups for program in group}  # fmt: skip
    return [(group, [step for program in group for step in runs[program][:RUNS_PER_PROGRAM]]) for group in groups]


def _residuals(config: TrainConfig, data: PreparedData, begin: Callable[[], TypedGNN]) -> list[np.ndarray]:
    """[2, num_nodes] of each judged step."""
    epochs, result = max(round(EPOCHS * config.trainer.max_epochs), 1), []
    trainer = replace(config.trainer, max_epochs=epochs, progress_bar=False)
    for number, (programs, judged) in enumerate(each(_folds(data), "training without some programs", "folds")):
        out = str(Path(config.out) / "folds" / str(number))
        fold = replace(config, out=out, trainer=trainer, resume=None, logger=LoggerConfig())
        network = fit(fold, _without(data, programs), begin())
        result += [residuals_of(network, step) for step in judged]
    return result


def unseen_shares(left_out: Sequence[Judged], mapped: Mapped = in_turn) -> dict[str, Shares]:
    """Kind of node -> shares that hold in left-out programs, where any does."""
    usual = usual_shares(left_out)
    scheduled = scheduled_shares(left_out, usual, mapped=mapped)
    both = {kind: Shares(usual[kind], scheduled[kind]) for kind in usual}
    return {kind: of_kind for kind, of_kind in both.items() if of_kind != NONE}


def shrunk(one: Judged, shrinkage: Mapping[str, Shares]) -> Judged:
    """With the shares of corrections that the training's own validation left (`keep_what_helps`), by node type."""
    whole, types = Shares(1.0, 1.0), one.step.nodes["node_type"]
    shares = [of_each(types, lambda name: shrinkage.get(name, whole).usual),
              of_each(types, lambda name: shrinkage.get(name, whole).scheduled)]  # fmt: skip
    return replace(one, residuals=one.residuals * np.stack(shares))


def grouped(num_runs: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Programs in NUM_FOLDS groups of about as many runs; none with fewer than MIN_GROUPS programs."""
    if len(num_runs) < MIN_GROUPS:
        return []
    groups: list[list[str]] = [[] for _ in range(NUM_FOLDS)]
    for program in sorted(num_runs, key=lambda name: (-num_runs[name], name)):
        min(groups, key=lambda group: sum(num_runs[name] for name in group)).append(program)
    return [tuple(group) for group in groups]


def _without(data: PreparedData, programs: Iterable[str]) -> PreparedData:
    out = set(programs)
    train, val = ([step for step in data.steps[part] if program_of(step) not in out] for part in ("train", "val"))
    return replace(data, steps={"train": tuple(train), "val": tuple(val or train[:1]), "test": ()})
