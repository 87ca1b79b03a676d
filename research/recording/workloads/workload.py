"""What every workload offers: a name, its parameters, and a training step that an intervention may disturb."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gnnperf.core import InputError

NOTHING: Mapping[str, str] = {}
SEED = 20260  # of weights and data; ranks add their number where they must differ


class Place(StrEnum):
    """Where in a step an intervention may act.

    START | zero_grad, forward | BACKWARD | backward | OPTIMIZER | optimizers step
    """

    START = "start"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


At = Callable[[Place], None]


def nothing(place: Place) -> None:
    """Act at no place."""


class Workload:
    """Base of programs: a subclass is a frozen dataclass of sizes; `dataclasses.asdict` of it goes into the card.

    Args:
        kind: which program this is.
        width: the field that is the axis of a split by size.
        letters: field -> what the name calls it, in the order of the name.
        otherwise: the same of fields that are named only where they differ from their default.
        label: how the name begins; None: with the kind.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    kind: ClassVar[str]
    _width: ClassVar[str]
    _letters: ClassVar[Mapping[str, str]]
    _otherwise: ClassVar[Mapping[str, str]]
    _label: ClassVar[str]

    def __init_subclass__(
        cls, *, kind: str, letters: Mapping[str, str], width: str = "width", otherwise: Mapping[str, str] = NOTHING,
        label: str | None = None,
    ) -> None:  # fmt: skip
        cls.kind, cls._width, cls._letters, cls._otherwise, cls._label = kind, width, letters, otherwise, label or kind

    @property
    def name(self) -> str:
        """Kind and sizes, and what else is not the default: dlrm_t8_r100k_d32_b256_acc2."""
        defaults = {field.name: field.default for field in fields(self)}
        differing = [field for field in self._otherwise if getattr(self, field) != defaults[field]]
        letters = {**self._letters, **self._otherwise}
        sizes = (letters[field] + _short(getattr(self, field)) for field in [*self._letters, *differing])
        return "_".join([self._label, *sizes])

    @property
    def batch(self) -> int:
        """Samples per rank and step."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """Size of the vectors that the program works on: the axis of a split by size."""
        return int(getattr(self, self._width))

    @property
    def parallelism(self) -> dict[str, int]:
        """Ranks by kind of parallelism; the process group must be up. Replicated on every rank, unless stated."""
        return {"dp": dist.get_world_size()}

    def build(self) -> "Trainer":
        """Weights, optimizers and batches on this rank; the process group must be up."""
        raise NotImplementedError


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return "-".join(map(_short, value))
    if isinstance(value, bool):
        return "" if value else "0"
    if isinstance(value, int):
        return f"{value // 1000}k" if value >= 1000 and value % 1000 == 0 else str(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


class Trainer(Protocol):
    """One rank of a training program."""

    @property
    def replicated(self) -> tuple[nn.Module, ...]:
        """Modules whose weights are the same on every rank."""
        ...

    def step(self, at: At = nothing) -> torch.Tensor:
        """One training step; the loss, [] float32 (0 on ranks that do not compute one)."""
        ...


@dataclass(frozen=True)
class LossTrainer:
    """A program whose rank computes a loss and its gradients: everything but pipelines."""

    # modules whose weights are the same on every rank; DDP or FSDP modules synchronize their gradients
    replicated: tuple[nn.Module, ...]
    forward: Callable[[], torch.Tensor]  # runs the next micro-batch; the loss, [] float32
    optimizers: tuple[torch.optim.Optimizer, ...]  # stepped in this order
    accumulation: int = 1  # micro-batches per step; gradients are synchronized in the last one
    # how embedding tables are accessed, one entry per table, for the card
    index_statistics: tuple[dict[str, object], ...] = ()

    def step(self, at: At = nothing) -> torch.Tensor:
        """Zero gradients, forward and backward of every micro-batch, optimizers."""
        at(Place.START)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        for micro_batch in range(self.accumulation):
            with synchronized(self.replicated, micro_batch == self.accumulation - 1):
                loss = self.forward()
                if micro_batch == 0:
                    at(Place.BACKWARD)
                loss.backward()
        at(Place.OPTIMIZER)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.detach()


@contextmanager
def synchronized(modules: tuple[nn.Module, ...], wanted: bool) -> Iterator[None]:
    """Whether a backward inside exchanges the gradients of these DDP modules."""
    with ExitStack() as stack:
        for module in modules:
            if not wanted and isinstance(module, DistributedDataParallel):
                stack.enter_context(module.no_sync())
        yield


def repeats_here(repeats: int, repeating_rank: int | None) -> int:
    """How often this rank runs the op: `repeats` if it is the repeating one, or all are (None), else once."""
    return repeats if repeating_rank is None or repeating_rank == dist.get_rank() else 1


def repeated(op: Callable[..., torch.Tensor], times: int, *inputs: torch.Tensor) -> torch.Tensor:
    """`op(*inputs)`, after `times` - 1 runs more that leave no trace in the gradient."""
    if times > 1:
        with torch.no_grad():
            for _ in range(times - 1):
                op(*inputs)
    return op(*inputs)


# Where weights and batches of a workload live, and the dtype of its products.


def device() -> torch.device:
    """The current CUDA device where there is one, else the CPU. To stay on the CPU, hide CUDA devices."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


PRECISIONS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "float32": nullcontext, "bfloat16": lambda: torch.autocast(device().type, dtype=torch.bfloat16),
}  # fmt: skip


def arithmetic(precision: str) -> Callable[[], AbstractContextManager[object]]:
    """What a forward runs in; weights stay float32."""
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}", where="precision", allowed=", ".join(PRECISIONS))
    return PRECISIONS[precision]
