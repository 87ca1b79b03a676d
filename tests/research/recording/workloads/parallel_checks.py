"""What the tests of transformers run in ranks of their own; found by name in the new processes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.cnn import Cnn
from research.recording.workloads.language_model import language_model
from research.recording.workloads.pipeline import Order, layers_of_stage
from research.recording.workloads.tensor_parallel import cut_blocks
from research.recording.workloads.transformer import Optimizer, Parallel, Transformer
from research.recording.workloads.workload import SEED, Place, Trainer, Workload
from tests.research.recording.workloads.ranks import refusal, three_steps, write

TINY = Transformer(layers=2, width=128, sequence=8, batch=2, vocabulary=50)
Result = dict[str, object]


def on_two_ranks(folder: Path) -> None:
    """Every kind of parallelism, its gradients next to those of the plain model."""
    whole = dist.group.WORLD
    pipeline = replace(TINY, parallel=Parallel.PP, accumulation=3)
    result: Result = {
        "ddp": _against_plain(TINY, data_ranks=[0, 1]),
        "blocking": _against_plain(replace(TINY, blocking=True), data_ranks=[0, 1]),
        "checkpointing": _against_plain(replace(TINY, checkpointing=True), data_ranks=[0, 1]),
        "repeats": _against_plain(replace(TINY, repeats=3), data_ranks=[0, 1]),
        "repeating_rank": _against_plain(replace(TINY, repeats=3, repeating_rank=1), data_ranks=[0, 1]),
        "accumulation": _against_plain(replace(TINY, accumulation=3), data_ranks=[0, 1]),
        "encoder": _against_plain(replace(TINY, causal=False), data_ranks=[0, 1]),
        "fsdp": _against_plain(replace(TINY, parallel=Parallel.FSDP), data_ranks=[0, 1]),
        "fsdp_recomputed": _against_plain(
            replace(TINY, parallel=Parallel.FSDP, checkpointing=True, accumulation=2), data_ranks=[0, 1]
        ),
        "tp": _against_plain(
            replace(TINY, parallel=Parallel.TP), data_ranks=[0], part=lambda model: cut_blocks(model, whole)
        ),
        "tp_recomputed": _against_plain(
            replace(TINY, parallel=Parallel.TP, checkpointing=True, repeats=2),
            data_ranks=[0], part=lambda model: cut_blocks(model, whole),
        ),
        "gpipe": _against_plain(pipeline, data_ranks=[0], part=_stage),
        "1f1b": _against_plain(
            replace(pipeline, order=Order.ONE_F_ONE_B, checkpointing=True), data_ranks=[0], part=_stage
        ),
        "bfloat16": _changed_by_repeats(replace(TINY, precision="bfloat16")),
        "uneven": _samples(replace(TINY, uneven=1.5)),
        "places": {kind.value: _places(kind) for kind in (Parallel.DDP, Parallel.PP)},
        "parallelism": {kind.value: replace(TINY, parallel=kind).parallelism for kind in Parallel},
        "refused": [refusal(size) for size in REFUSED],
    }  # fmt: skip
    write(folder, result)


def on_four_ranks(folder: Path) -> None:
    """A pipeline of four stages."""
    deep = replace(TINY, layers=4)
    result: Result = {
        "gpipe": _against_plain(
            replace(deep, parallel=Parallel.PP, accumulation=2), data_ranks=[0], part=_stage
        ),
        "1f1b": _against_plain(
            replace(deep, parallel=Parallel.PP, accumulation=5, order=Order.ONE_F_ONE_B), data_ranks=[0], part=_stage
        ),
    }  # fmt: skip
    write(folder, result)


def on_one_rank(folder: Path) -> None:
    """Losses of three steps in every kind of parallelism, and names of collectives."""
    write(folder, {kind.value: three_steps(replace(TINY, parallel=kind, accumulation=2)) for kind in Parallel})


def on_a_gpu(folder: Path) -> None:
    """Losses of captured and of compiled steps."""
    changes = {
        "graph": replace(TINY, cuda_graph=True),
        "graph_accumulated": replace(TINY, cuda_graph=True, accumulation=2, optimizer=Optimizer.ADAMW),
        "compiled": replace(TINY, compile=True),
        "eager": TINY,
    }
    result: Result = {}
    for name, size in changes.items():
        trainer = size.build()
        result[name] = [float(trainer.step()) for _ in range(16)]
    write(folder, result)


REFUSED: tuple[Workload, ...] = (
    replace(TINY, width=96),
    replace(TINY, width=64, parallel=Parallel.TP),
    replace(TINY, layers=3, parallel=Parallel.PP),
    replace(TINY, parallel=Parallel.TP, uneven=2.0),
    replace(TINY, parallel=Parallel.FSDP, blocking=True),
    replace(TINY, accumulation=0),
    replace(TINY, compile=True),
    replace(TINY, cuda_graph=True),
    replace(TINY, precision="float8"),
    Cnn(compile=True),
    Cnn(cuda_graph=True),
    replace(TINY, parallel=Parallel.PP, lengths=(8,)),
    replace(TINY, lengths=(1000,)),
)


def _whole(model: nn.Sequential) -> nn.Sequential:
    return model


def _stage(model: nn.Sequential) -> nn.Sequential:
    return layers_of_stage(model, dist.get_rank(), dist.get_world_size())


def _against_plain(size: Transformer, data_ranks: Sequence[int], part: object = _whole) -> dict[str, float]:
    """Largest relative error of a gradient of this rank's weights, and the loss next to the plain model's.

    Args:
        size: what is tested.
        data_ranks: whose batches' gradients are averaged.
        part: of a whole model, what this rank holds: applied to a model whose weights are the expected gradients.
    """
    trainer = size.build()
    loss = float(trainer.step())
    losses, expected = _plain_gradients(size, data_ranks)
    assert callable(part)
    wanted = [weight.detach() for weight in part(expected).parameters()]
    got = [_full(weight.grad) for weight in _weights(trainer)]
    assert len(got) == len(wanted) > 0
    errors = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(got, wanted, strict=True)]
    return {"error": max(errors), "loss": loss, "plain_losses": losses}  # type: ignore[dict-item]


def _weights(trainer: Trainer) -> list[torch.Tensor]:
    optimizer = trainer.optimizer if hasattr(trainer, "optimizer") else trainer.optimizers[0]  # type: ignore[attr-defined]
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _full(gradient: torch.Tensor | None) -> torch.Tensor:
    assert gradient is not None
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def _plain_gradients(size: Transformer, data_ranks: Sequence[int]) -> tuple[list[float], nn.Sequential]:
    """Losses of the last micro-batch by data rank; a plain model whose weights are its gradients."""
    plain = replace(size, repeats=1)
    torch.manual_seed(SEED)
    model = language_model(plain)
    losses = []
    for rank in data_ranks:
        torch.manual_seed(SEED + 1 + rank)
        tokens = [torch.randint(0, size.vocabulary, (size.batch, size.sequence + 1)) for _ in range(4)]
        for micro_batch in range(size.accumulation):
            read = tokens[micro_batch % 4]
            inputs = read[:, :-1] if size.causal else read[:, 1:]
            loss = F.cross_entropy(model(inputs), read[:, 1:].flatten())
            (loss / len(data_ranks)).backward()
        losses.append(float(loss))
    for weight in model.parameters():
        assert weight.grad is not None
        weight.data = weight.grad
    return losses, model


def _changed_by_repeats(size: Transformer) -> dict[str, object]:
    """Loss and gradients (absolute sums) of a step, with and without repeats."""
    result: dict[str, object] = {}
    for repeats in (1, 3):
        trainer = replace(size, repeats=repeats).build()
        loss = float(trainer.step())
        sums = [float(_full(weight.grad).double().abs().sum()) for weight in _weights(trainer)]
        result[str(repeats)] = {"loss": loss, "gradients": sums}
    return result


def _samples(size: Transformer) -> int:
    """Rows of the first block's input."""
    trainer = size.build()
    rows: list[int] = []
    (model,) = trainer.replicated
    model.module[1].register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0].shape[0]))  # type: ignore[union-attr, operator, index]
    trainer.step()
    return rows[0] // size.sequence


def _places(kind: Parallel) -> list[Place]:
    passed: list[Place] = []
    replace(TINY, parallel=kind, accumulation=2).build().step(passed.append)
    return passed
