"""A transformer language model (GPT-2 or BERT layout: pre-norm, GELU), trained in several kinds of parallelism."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import cycle

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

from gnnperf.core import InputError, require
from research.recording.workloads.accelerate import Batch, compiled, model_trainer
from research.recording.workloads.language_model import HEAD, Block, Recomputed, language_model, recomputed
from research.recording.workloads.pipeline import ORDERS, Order, PipelineTrainer, layers_of_stage
from research.recording.workloads.replicate import NUM_BATCHES, own_batches, replicate
from research.recording.workloads.tensor_parallel import can_be_cut, cut_blocks
from research.recording.workloads.workload import SEED, Trainer, Workload, arithmetic, device


class Parallel(StrEnum):
    """How the ranks share the work."""

    DDP = "ddp"  # weights on every rank, own batches
    FSDP = "fsdp"  # weights sharded, gathered block by block; own batches
    TP = "tp"  # every block cut, one batch
    PP = "pp"  # every rank some of the blocks, one batch in micro-batches


class Optimizer(StrEnum):
    """How weights change."""

    SGD = "sgd"  # with momentum
    ADAMW = "adamw"  # on a CPU seven ops per weight more


@dataclass(frozen=True)
class Transformer(Workload, kind="transformer",
                  letters={"layers": "l", "width": "w", "sequence": "s", "batch": "b"}, otherwise={
    "vocabulary": "v", "bucket_mb": "mb", "parallel": "", "order": "", "accumulation": "acc",
    "precision": "", "checkpointing": "ckpt", "optimizer": "", "repeats": "rep", "repeating_rank": "on",
    "uneven": "uneven", "blocking": "blocking", "compile": "compile", "cuda_graph": "graph", "lengths": "len",
}):  # fmt: skip
    """A language model."""

    layers: int = 4  # blocks of attention and perceptron
    width: int = 128  # size of a token's vector; a multiple of 64 (the size of a head)
    sequence: int = 64  # tokens per sample
    batch: int = 8  # samples per rank (tensor and pipeline parallel: per group of ranks) and micro-batch
    vocabulary: int = 1000  # number of tokens
    causal: bool = True  # a decoder (every token predicts the next) or an encoder (every token predicts itself)
    bucket_mb: float = 1.0  # DDP's bucket: smaller ones give more, earlier all-reduces
    parallel: Parallel = Parallel.DDP  # how the ranks share the work
    order: Order = Order.GPIPE  # of a pipeline's forwards and backwards
    accumulation: int = 1  # micro-batches per step; in a pipeline several are in flight
    precision: str = "float32"  # of products, float32 or bfloat16 (autocast)
    checkpointing: bool = False  # blocks are recomputed in the backward
    optimizer: Optimizer = Optimizer.SGD  # of all weights
    repeats: int = 1  # how often the up-projection of every block runs in the forward
    repeating_rank: int | None = None  # the only rank that repeats it; None all do
    uneven: float = 1.0  # the last rank has `uneven` times the batch (DDP and FSDP)
    blocking: bool = False  # ranks wait for a bucket of gradients where they send it (DDP)
    compile: bool = False  # with torch.compile (CUDA only)
    cuda_graph: bool = False  # the step is captured once and replayed (one CUDA device only)
    lengths: tuple[int, ...] = ()  # tokens per sample of the batches, which take turns; (): `sequence`

    @property
    def name(self) -> str:
        """Layout, sizes, and what else is not the default: gpt_l2_w128_s64_b8_tp."""
        return ("gpt" if self.causal else "bert") + super().name.removeprefix(self.kind)

    @property
    def parallelism(self) -> dict[str, int]:
        ranks = dist.get_world_size()
        return {
            Parallel.DDP: {"dp": ranks},
            Parallel.FSDP: {"dp": ranks, "fsdp": ranks},
            Parallel.TP: {"tp": ranks},
            Parallel.PP: {"pp": ranks},
        }[self.parallel]

    def build(self) -> Trainer:
        """This rank's part of the model, and batches."""
        _check(self)
        return PROGRAMS[self.parallel](self)


def _check(size: Transformer) -> None:
    """Refuse what would run as something else than it states."""
    require(size.width % HEAD == 0, "width", size.width, f"multiples of {HEAD}")
    require(size.accumulation >= 1, "accumulation", size.accumulation, "a whole number >= 1")
    of_each_rank = size.parallel in (Parallel.DDP, Parallel.FSDP)
    require(of_each_rank or size.uneven == 1, "uneven", size.uneven, f"1 with {size.parallel}: ranks share a batch")
    require(size.parallel == Parallel.DDP or not size.blocking, "blocking", size.blocking,
            f"false with {size.parallel}")  # fmt: skip
    same_shapes = size.parallel == Parallel.PP or size.uneven != 1 or size.cuda_graph
    require(not (size.lengths and same_shapes), "lengths", size.lengths, "() with a pipeline, uneven or cuda_graph")
    require(max(size.lengths, default=0) <= size.sequence, "lengths", size.lengths, f"up to {size.sequence}")
    plain = size.parallel == Parallel.DDP and dist.get_world_size() == 1
    require(plain or not size.cuda_graph, "cuda_graph", size.cuda_graph, "false with several ranks")


def _plain(size: Transformer) -> nn.Sequential:
    """The whole model, the same on every rank."""
    torch.manual_seed(SEED)
    return language_model(size).to(device())


def _with_recomputation(model: nn.Sequential, size: Transformer) -> nn.Sequential:
    return recomputed(model) if size.checkpointing else model


def _batches(size: Transformer, data_rank: int, samples: int) -> Iterator[Batch]:
    sizes = cycle([replace(size, sequence=length) for length in size.lengths] or [size])
    return own_batches(lambda: _batch(next(sizes), samples), data_rank, len(size.lengths) or NUM_BATCHES)


def _batch(size: Transformer, samples: int) -> Batch:
    """Tokens and targets, [B, S] int64 each."""
    tokens = torch.randint(0, size.vocabulary, (samples, size.sequence + 1))
    inputs = tokens[:, :-1] if size.causal else tokens[:, 1:]
    return inputs.contiguous().to(device()), tokens[:, 1:].contiguous().to(device())


def own_samples(batch: int, uneven: float) -> int:
    """Samples of this rank: the last one's are `uneven` times the others'."""
    is_last = dist.get_rank() == dist.get_world_size() - 1
    return max(1, round(batch * uneven)) if is_last else batch


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """[N, V], [B, S] -> [] float32."""
    return F.cross_entropy(logits.float(), targets.view(-1))


def _sgd(size: Transformer, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    # Sharded weights have no fused form of it.
    return torch.optim.SGD(weights, lr=0.1, momentum=0.9, fused=size.parallel != Parallel.FSDP)


def _adamw(size: Transformer, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(weights, lr=1e-3, fused=True, capturable=size.cuda_graph)


OPTIMIZERS = {Optimizer.SGD: _sgd, Optimizer.ADAMW: _adamw}


def _optimizer(model: nn.Module, size: Transformer) -> torch.optim.Optimizer:
    return OPTIMIZERS[size.optimizer](size, model.parameters())


def _loss_trainer(model: nn.Module, size: Transformer, batches: Iterator[Batch],
                  replicated: tuple[nn.Module, ...]) -> Trainer:  # fmt: skip
    return model_trainer(size, model, batches, _optimizer(model, size), cross_entropy, replicated)


def _ddp(size: Transformer) -> Trainer:
    model = replicate(_with_recomputation(_plain(size), size), size.bucket_mb, blocking=size.blocking)
    batches = _batches(size, dist.get_rank(), own_samples(size.batch, size.uneven))
    return _loss_trainer(model, size, batches, (model,))


def _fsdp(size: Transformer) -> Trainer:
    model = _with_recomputation(_plain(size), size)
    for part in model:
        if isinstance(part, Block | Recomputed):
            fully_shard(part)
    fully_shard(model)
    batches = _batches(size, dist.get_rank(), own_samples(size.batch, size.uneven))
    return _loss_trainer(model, size, batches, ())


def _tp(size: Transformer) -> Trainer:
    ranks = dist.get_world_size()
    if not can_be_cut(size.width, ranks):
        raise InputError(f"{size.width // HEAD} heads over {ranks} ranks", where="width",
                         allowed=f"multiples of {HEAD * ranks}")  # fmt: skip
    cut = _with_recomputation(cut_blocks(_plain(size), dist.group.WORLD), size)
    return _loss_trainer(cut, size, _batches(size, 0, size.batch), (cut,))


def _pp(size: Transformer) -> Trainer:
    stage, stages = dist.get_rank(), dist.get_world_size()
    require(size.layers % stages == 0, "layers", size.layers, f"multiples of the {stages} stages")
    layers = _with_recomputation(layers_of_stage(_plain(size), stage, stages), size)
    precision, run = arithmetic(size.precision), compiled(layers, size.compile)

    def in_precision(inputs: torch.Tensor) -> torch.Tensor:
        with precision():
            return run(inputs)

    turns = ORDERS[size.order](stage, stages, size.accumulation)
    shape = (size.batch * size.sequence, size.width)
    return PipelineTrainer(in_precision, cross_entropy, _batches(size, 0, size.batch), shape,
                           _optimizer(layers, size), turns, stage, stages, device())  # fmt: skip


PROGRAMS: dict[Parallel, Callable[[Transformer], Trainer]] = {
    Parallel.DDP: _ddp,
    Parallel.FSDP: _fsdp,
    Parallel.TP: _tp,
    Parallel.PP: _pp,
}
