"""Programs of torch that do what plans state, for one rank, on tensors without data.

The blocks are those of `block.kernels: eager`: torch's own ops, autograd and fully_shard. Collectives go through a
process group that does nothing. What stands in for a fused kernel (norm, cross entropy) is an autograd function that
keeps what the kernel keeps.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from gnnperf.generate.transformer.block import Activation
from gnnperf.generate.transformer.passes import stage_passes
from gnnperf.generate.transformer.plan import Recompute, Sharded, TransformerPlan
from gnnperf.generate.transformer.rank_memory import ADAM_MOMENTS
from gnnperf.generate.transformer.sizes import owned_count, routed, sizes

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
Context = Any  # of autograd functions


class RmsNorm(torch.autograd.Function):
    """The fused kernel: keeps its input and a number per row."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor) -> Tensor:
        """[..., hidden] normed."""
        ctx.save_for_backward(x, weight, torch.empty(*x.shape[:-1], 1, dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Context, *grad: Tensor) -> tuple[Tensor, Tensor]:
        """Of input and weight."""
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


class CrossEntropy(torch.autograd.Function):
    """In float32 and in place, as tensor-parallel ranks compute it; keeps the probabilities."""

    @staticmethod
    def forward(ctx: Context, half: Tensor, labels: Tensor) -> Tensor:
        """[tokens, columns] to a number."""
        logits = half.float()
        logits.sub_(logits.amax(1, keepdim=True)).exp_()
        total = logits.sum(1, keepdim=True)
        logits.div_(total)
        ctx.save_for_backward(logits, labels)
        ctx.dtype = half.dtype
        return total.mean()

    @staticmethod
    def backward(ctx: Context, *grad: Tensor) -> tuple[Tensor, None]:
        """Of the logits."""
        logits, _ = ctx.saved_tensors
        return logits.mul_(grad[0]).to(ctx.dtype), None


class IntoProducts(torch.autograd.Function):
    """f: the same forward, a sum over tensor-parallel ranks backward."""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Tensor:
        """As it is."""
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Context, *grad: Tensor) -> Tensor:
        """Summed in place."""
        dist.all_reduce(grad[0])
        return grad[0]


class OutOfProducts(torch.autograd.Function):
    """g: a sum forward, in place."""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Tensor:
        """Summed."""
        dist.all_reduce(x)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Context, *grad: Tensor) -> Tensor:
        """As it is."""
        return grad[0]


class GatheredProduct(torch.autograd.Function):
    """Products of a gathered input, which is gathered again backward (Megatron-LM, sequence parallelism)."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, ways: int, *weights: Tensor) -> tuple[Tensor, ...]:
        """[batch, part, hidden] to one result for each weight, of the whole sequence."""
        ctx.save_for_backward(x, *weights)
        ctx.ways = ways
        whole = _gathered(x, ways)
        return tuple(F.linear(whole, weight) for weight in weights)

    @staticmethod
    def backward(ctx: Context, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Input gradient, scattered, then the weights'."""
        x, *weights = ctx.saved_tensors
        whole = _gathered(x, ctx.ways)
        total = grads[0] @ weights[0]
        for grad, weight in zip(grads[1:], weights[1:], strict=True):
            total = total + grad @ weight
        part = torch.empty_like(x)
        dist.reduce_scatter_single(part.flatten(), total.flatten())
        of_weights = [grad.flatten(0, 1).t() @ whole.flatten(0, 1) for grad in grads]
        return (part, None, *of_weights)


class Scattered(torch.autograd.Function):
    """g of sequence parallelism: the rank's part of a sum; its gradient is gathered."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, ways: int) -> Tensor:
        """[batch, sequence, hidden] to [batch, part, hidden]."""
        ctx.ways = ways
        part = torch.empty(x.shape[0], x.shape[1] // ways, x.shape[2], dtype=x.dtype)
        dist.reduce_scatter_single(part.flatten(), x.flatten())
        return part

    @staticmethod
    def backward(ctx: Context, *grad: Tensor) -> tuple[Tensor, None]:
        """Gathered."""
        return _gathered(grad[0], ctx.ways), None


class Exchange(torch.autograd.Function):
    """What is sent to other ranks becomes what arrives from them, of another shape; and gradients back."""

    @staticmethod
    def forward(ctx: Context, sent: Tensor, *arriving: int) -> Tensor:
        """[...] to [*arriving]."""
        ctx.shape = sent.shape
        return torch.empty(arriving, dtype=sent.dtype)

    @staticmethod
    def backward(ctx: Context, *grad: Tensor) -> tuple[Tensor | None, ...]:
        """The other way round."""
        return torch.empty(ctx.shape, dtype=grad[0].dtype), None, None


def _gathered(x: Tensor, ways: int) -> Tensor:
    whole = torch.empty(x.shape[0], x.shape[1] * ways, x.shape[2], dtype=x.dtype)
    dist.all_gather_single(whole.flatten(), x.flatten())
    return whole


class Norm(nn.Module):
    """RMS norm with a weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """[..., width]."""
        return RmsNorm.apply(x, self.weight)  # type: ignore[no-any-return, no-untyped-call]


class Products(nn.Module):
    """Linear layers that share their input, behind f."""

    def __init__(self, plan: TransformerPlan, inputs: int, outputs: Iterable[int]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(n, inputs)) for n in outputs)
        self.ways, self.splits = plan.parallelism.tensor, plan.splits_sequence

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """[batch, part, inputs] to [batch, sequence, outputs] each."""
        if self.splits:
            return GatheredProduct.apply(x, self.ways, *self.weights)  # type: ignore[no-any-return, no-untyped-call]
        given = IntoProducts.apply(x) if self.ways > 1 else x  # type: ignore[no-untyped-call]
        return tuple(F.linear(given, weight) for weight in self.weights)


class LastProduct(nn.Module):
    """A linear layer before g."""

    def __init__(self, plan: TransformerPlan, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.ways, self.splits = plan.parallelism.tensor, plan.splits_sequence

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, inputs] to [batch, part, outputs]."""
        result = F.linear(x, self.weight)
        if self.splits:
            return Scattered.apply(result, self.ways)  # type: ignore[no-any-return, no-untyped-call]
        return OutOfProducts.apply(result) if self.ways > 1 else result  # type: ignore[no-any-return, no-untyped-call]


class Attention(nn.Module):
    """Of this rank's heads, with rotary positions in float32 and a fused core."""

    def __init__(self, plan: TransformerPlan) -> None:
        super().__init__()
        s = sizes(plan)
        self.head, keys = s.head, s.key_heads * s.head
        self.projections = Products(plan, s.hidden, (s.shard, keys, keys))
        self.out = LastProduct(plan, s.shard, s.hidden)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """[batch, part, hidden]."""
        q, k, v = (t.unflatten(-1, (-1, self.head)) for t in self.projections(x))
        q, k = self._turned(q, turns), self._turned(k, turns)
        grouped = q.shape[2] != k.shape[2]
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        core = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        del q, k, v
        return self.out(core.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _turned(self, t: Tensor, turns: Tensor) -> Tensor:
        pairs = torch.view_as_complex(t.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turns).flatten(3).type_as(t)


class Mlp(nn.Module):
    """Gated or not."""

    def __init__(self, plan: TransformerPlan) -> None:
        super().__init__()
        s = sizes(plan)
        self.gated = plan.block.activation is Activation.SWIGLU
        self.into = Products(plan, s.hidden, (s.width,) * (2 if self.gated else 1))
        self.down = LastProduct(plan, s.width, s.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, part, hidden]."""
        made = self.into(x)
        inner = F.silu(made[0]) * made[1] if self.gated else F.gelu(made[0])
        del made
        return self.down(inner)  # type: ignore[no-any-return]


class Experts(nn.Module):
    """Router and this rank's experts; every expert gets as many rows."""

    def __init__(self, plan: TransformerPlan) -> None:
        super().__init__()
        assert plan.experts is not None, "a plan with experts"
        s, self.routed = sizes(plan), routed(plan)
        self.top_k, self.exchanges = plan.experts.top_k, plan.parallelism.expert > 1
        self.router = nn.Parameter(torch.empty(plan.experts.count, s.hidden))
        self.up = nn.Parameter(torch.empty(self.routed.local, s.hidden, 2 * self.routed.width))
        self.down = nn.Parameter(torch.empty(self.routed.local, self.routed.width, s.hidden))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, hidden]."""
        flat = x.flatten(0, 1)
        scores = F.linear(flat, self.router).float().softmax(-1)
        weights, _ = scores.topk(self.top_k)
        order = torch.empty(self.routed.sent, dtype=torch.int64)
        given = weights.flatten().to(x.dtype)
        rows = flat.index_select(0, order)
        result = self._there_and_back(rows) * given[:, None]
        return torch.zeros_like(flat).index_add(0, order, result).view_as(x)

    def _there_and_back(self, rows: Tensor) -> Tensor:
        r, sent = self.routed, rows.shape[0]
        if self.exchanges:
            rows = Exchange.apply(rows, r.arriving, rows.shape[1])  # type: ignore[no-untyped-call]
            rows = rows.index_select(0, torch.empty(r.arriving, dtype=torch.int64)) if r.local > 1 else rows
        gate, up = torch.bmm(rows.view(r.local, r.computed, -1), self.up).chunk(2, -1)
        inner = F.silu(gate) * up
        del gate, up
        rows = torch.bmm(inner, self.down).flatten(0, 1)
        if self.exchanges:
            rows = rows.index_select(0, torch.empty(r.arriving, dtype=torch.int64)) if r.local > 1 else rows
            rows = Exchange.apply(rows, sent, rows.shape[1])  # type: ignore[no-untyped-call]
        return rows


class Layer(nn.Module):
    """Attention, then MLP or experts, with their residuals."""

    def __init__(self, plan: TransformerPlan, layer: int) -> None:
        super().__init__()
        hidden = plan.model.hidden
        self.first, self.second = Norm(hidden), Norm(hidden)
        self.attention = Attention(plan)
        self.mlp: nn.Module = Experts(plan) if plan.has_experts(layer) else Mlp(plan)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """[batch, part, hidden]."""
        x = x + self.attention(self.first(x), turns)
        return x + self.mlp(self.second(x))  # type: ignore[no-any-return]


class First(nn.Module):
    """The embedding."""

    def __init__(self, plan: TransformerPlan) -> None:
        super().__init__()
        self.table = nn.Embedding(plan.vocabulary_per_rank, plan.model.hidden)
        self.ways, self.splits = plan.parallelism.tensor, plan.splits_sequence

    def forward(self, ids: Tensor) -> Tensor:
        """[batch, sequence] to [batch, part, hidden]."""
        x = self.table(ids)
        if self.splits:
            return Scattered.apply(x, self.ways).clone()  # type: ignore[no-any-return, no-untyped-call]
        x = OutOfProducts.apply(x) if self.ways > 1 else x  # type: ignore[no-untyped-call]
        return x.clone()  # type: ignore[no-any-return]


class Last(nn.Module):
    """The last norm and the logits' columns of this rank."""

    def __init__(self, plan: TransformerPlan) -> None:
        super().__init__()
        self.norm = Norm(plan.model.hidden)
        self.logits = Products(plan, plan.model.hidden, (plan.vocabulary_per_rank,))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, part, hidden] to [tokens, columns]."""
        return self.logits(self.norm(x.clone()))[0].flatten(0, 1)  # type: ignore[no-any-return]


class Whole(nn.Module):
    """All units, so that fully_shard has a root."""

    def __init__(self, units: list[nn.Module], turns: Tensor) -> None:
        super().__init__()
        self.units, self.turns = nn.ModuleList(units), turns

    def forward(self, x: Tensor) -> Tensor:
        """Through all of them."""
        for unit in self.units:
            x = unit(x) if isinstance(unit, First | Last) else unit(x, self.turns)
        return x


class StorageTracker(MemTracker):
    """Counts storages only: torch's count by module covers one call of a module at a time."""

    def _pre_fw_hook(self, *arguments: object) -> None:
        """Nothing."""

    _post_fw_hook = _pre_bw_hook = _post_bw_hook = _pre_fw_hook  # type: ignore[assignment]


@dataclass(frozen=True)
class Program:
    """A step of a rank, and the optimizer's state, which no one else holds."""

    step: Callable[[], None]
    states: tuple[Tensor, ...]


@contextmanager
def fake_ranks(world_size: int) -> Iterator[None]:
    """A process group of so many ranks, of which this is the first, that sends nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def counted_peak_bytes(plan: TransformerPlan, stage: int = 0) -> int:
    """What torch's tracker counts at the peak of a step of one rank of a stage: `Total` of MemTracker."""
    ways = plan.parallelism
    tracker = StorageTracker()
    with fake_ranks(ways.tensor * ways.data):
        mesh = init_device_mesh("cpu", (ways.tensor * ways.data,))
        with FakeTensorMode(allow_non_fake_inputs=True):
            sharded = plan.sharding.state is Sharded.PARAMETERS
            program = _sharded(plan, mesh, tracker) if sharded else _staged(plan, stage, tracker)
            program.step()
    (snapshot,) = tracker.get_tracker_snapshot("peak").values()
    return int(snapshot["Total"])


def _units(plan: TransformerPlan, part: int, parts: int) -> list[nn.Module]:
    layers: list[nn.Module] = [Layer(plan, layer) for layer in plan.layers_of_part(part)]
    if plan.schedule.recompute is Recompute.FULL:
        layers = [checkpoint_wrapper(layer, preserve_rng_state=False) for layer in layers]
    return [*([First(plan)] if part == 0 else []), *layers, *([Last(plan)] if part == parts - 1 else [])]


def _turns(plan: TransformerPlan) -> Tensor:
    return torch.empty(1, plan.model.sequence, 1, sizes(plan).head // 2, dtype=torch.complex64)


def _data(plan: TransformerPlan) -> tuple[Tensor, Tensor]:
    batch, sequence = plan.schedule.micro_batch, plan.model.sequence
    return torch.empty(batch, sequence, dtype=torch.int64), torch.empty(batch * sequence, dtype=torch.int64)


def _sharded(plan: TransformerPlan, mesh: DeviceMesh, tracker: MemTracker) -> Program:
    """fully_shard on every unit, float32 parts and Adam."""
    policy = MixedPrecisionPolicy(DTYPES[plan.model.dtype], DTYPES[plan.schedule.gradient_dtype])
    units = _units(plan, 0, 1)
    for unit in units:
        retained = isinstance(unit, Last)
        reshards = plan.sharding.reshard_after_forward and not retained
        fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=reshards)
    model = Whole(units, _turns(plan))
    fully_shard(model, mesh=mesh, mp_policy=policy)
    states = tuple(torch.zeros_like(p) for p in model.parameters() for _ in range(ADAM_MOMENTS))
    tracker.track_external(model, *states)

    def step() -> None:
        with tracker:
            for _ in range(plan.num_micro_batches):
                ids, labels = _data(plan)
                CrossEntropy.apply(model(ids), labels).backward()  # type: ignore[no-untyped-call]
            for parameter in model.parameters():
                parameter.grad = None

    return Program(step, states)


def _staged(plan: TransformerPlan, stage: int, tracker: MemTracker) -> Program:
    """The passes of a stage in the plan's order; gradients are added up in buffers of their own."""
    parts = plan.parallelism.pipeline * plan.schedule.chunks
    turns, dtype = _turns(plan), DTYPES[plan.model.dtype]
    with _made_in(dtype):
        chunks = {
            chunk: Whole(_units(plan, chunk * plan.parallelism.pipeline + stage, parts), turns)
            for chunk in range(plan.schedule.chunks)
        }
    sums = DTYPES[plan.schedule.gradient_dtype]
    parameters = [p for chunk in chunks.values() for p in chunk.parameters()]
    buffers = {p: torch.zeros(p.shape, dtype=sums) for p in parameters}
    for parameter, buffer in buffers.items():
        parameter.register_post_accumulate_grad_hook(_added_to(buffer))
    own = owned_count(plan, stage).total
    states = tuple(torch.zeros(own, dtype=torch.float32) for _ in range(1 + ADAM_MOMENTS))
    tracker.track_external(*chunks.values(), *buffers.values(), *states)

    def step() -> None:
        with tracker:
            _run_passes(plan, stage, chunks)

    return Program(step, states)


@contextmanager
def _made_in(dtype: torch.dtype) -> Iterator[None]:
    """Parameters in this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _added_to(buffer: Tensor) -> Callable[[Tensor], None]:
    def add(parameter: Tensor) -> None:
        assert parameter.grad is not None, "autograd has just made it"
        buffer.add_(parameter.grad)
        parameter.grad = None

    return add


def _run_passes(plan: TransformerPlan, stage: int, chunks: dict[int, Whole]) -> None:
    stages, last = plan.parallelism.pipeline, plan.parallelism.pipeline * plan.schedule.chunks - 1
    shape = (plan.schedule.micro_batch, plan.model.sequence, plan.model.hidden)
    if plan.splits_sequence:
        shape = (shape[0], shape[1] // plan.parallelism.tensor, shape[2])
    dtype = DTYPES[plan.model.dtype]
    flying: dict[tuple[int, int], tuple[Tensor | None, Tensor]] = {}
    for each in stage_passes(plan.order, stage):
        part, key = each.chunk * stages + stage, (each.micro_batch, each.chunk)
        if not each.backward:
            ids, labels = _data(plan)
            received = None if part == 0 else torch.empty(shape, dtype=dtype, requires_grad=True)
            result = chunks[each.chunk](ids if received is None else received)
            if part == last:
                result = CrossEntropy.apply(result, labels)  # type: ignore[no-untyped-call]
            else:  # a stage lets go of what it has sent, and keeps its graph (Megatron-LM, deallocate_output_tensor)
                result.data = torch.empty(1, dtype=result.dtype)
            flying[key] = received, result
            del result, received
            continue
        received, result = flying.pop(key)
        if part == last:
            result.backward()  # type: ignore[no-untyped-call]
        else:
            _backward(result, torch.empty(shape, dtype=dtype))
        if received is not None:
            received.grad = None
        del result, received


def _backward(result: Tensor, gradient: Tensor) -> None:
    """The engine itself: the result no longer has the shape of its gradient."""
    torch.autograd.Variable._execution_engine.run_backward(  # type: ignore[attr-defined]
        (result,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True
    )
