"""Random valid programs (in the manner of NeuRI, Liu et al. 2023): ops composed under rules of their shapes.

image [B, 8, S, S], vectors [B, 64], tokens [B, 32] -> embedding [B, 32, 32]
    -> op after op, each valid by its rule, on values made before -> a number from every value no one used -> loss
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from random import Random

import torch
from torch import nn

from gnnperf.core import InputError
from research.recording.workloads.op_rules import ALONG, BINARY, ELEMENTWISE, LAYOUT, REDUCTIONS, Op, Rule, Value
from research.recording.workloads.op_rules_product import CONVOLUTIONS, PRODUCTS, WEIGHTED
from research.recording.workloads.replicate import own_batches, replicated
from research.recording.workloads.workload import SEED, LossTrainer, Trainer, Workload, arithmetic, device

FAMILIES: tuple[Sequence[Rule], ...] = (
    ELEMENTWISE, ALONG, REDUCTIONS, LAYOUT, BINARY, WEIGHTED, PRODUCTS, CONVOLUTIONS,
)  # fmt: skip
SHARES = (2, 1, 1, 3, 3, 1, 7, 14)  # of the families among what is tried
CHANNELS, VECTOR, TOKENS, VOCABULARY, EMBEDDED = 8, 64, 32, 500, 32
LARGEST_BOUND, LEAST_ELEMENTS = 50.0, 64
WORK_PER_ELEMENT = 100.0  # of `scale`: what one op may do
MOST_TRIES_PER_OP = 1000
UNUSED_SHARE = 0.6  # of inputs are taken from values that no op uses yet, so that programs are deep


@dataclass(frozen=True)
class RandomGraph(Workload, kind="random_graph", width="scale",
                  letters={"seed": "s", "num_ops": "n", "scale": "e", "batch": "b"},
                  otherwise={"image": "i", "precision": "", "accumulation": "acc"}):  # fmt: skip
    """A program of random ops."""

    seed: int = 0  # which program
    num_ops: int = 16  # ops between the inputs and the loss
    scale: int = 128_000  # elements that a value may have at most
    batch: int = 32  # samples per rank and micro-batch: the first dimension of the inputs
    image: int = 16  # pixels along each side of the images
    precision: str = "float32"  # of products, float32 or bfloat16 (autocast)
    accumulation: int = 1  # micro-batches per step

    def build(self) -> Trainer:
        """The replicated program and batches."""
        torch.manual_seed(SEED + self.seed)
        model = replicated(Program(sources(self), compose(self)))
        batches = own_batches(self._batch)
        context = arithmetic(self.precision)

        def forward() -> torch.Tensor:
            with context():
                loss: torch.Tensor = model(*next(batches))
            return loss

        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
        return LossTrainer((model,), forward, (optimizer,), self.accumulation)

    def _batch(self) -> tuple[torch.Tensor, ...]:
        """Images [B, 8, S, S], vectors [B, 64], tokens [B, 32] int64."""
        image, vectors = torch.randn(self.batch, *_pixels(self)), torch.randn(self.batch, VECTOR)
        tokens = torch.randint(0, VOCABULARY, (self.batch, TOKENS))
        return image.to(device()), vectors.to(device()), tokens.to(device())


@dataclass(frozen=True)
class Node:
    """An op and the places of its inputs: sources first, then ops in order."""

    op: Op
    inputs: tuple[int, ...]


def sources(size: RandomGraph) -> tuple[Value, ...]:
    """What programs begin with: images, vectors, embedded tokens."""
    return tuple(Value((size.batch, *shape), 4.0) for shape in (_pixels(size), (VECTOR,), (TOKENS, EMBEDDED)))


def _pixels(size: RandomGraph) -> tuple[int, int, int]:
    return CHANNELS, size.image, size.image


def compose(size: RandomGraph) -> tuple[Node, ...]:
    """The program of a seed: valid and of bounded numbers by construction."""
    random, values, nodes = Random(size.seed), list(sources(size)), list[Node]()
    unused = set(range(len(values)))
    for _ in range(MOST_TRIES_PER_OP * size.num_ops):
        if len(nodes) == size.num_ops:
            return tuple(nodes)
        (family,) = random.choices(FAMILIES, SHARES)
        node = _place(random, random.choice(family), values, unused, size)
        if node is not None:
            unused = (unused - set(node.inputs)) | {len(values)}
            nodes.append(node)
            values.append(node.op.output)
    raise InputError(f"{len(nodes)} of {size.num_ops} ops fit {size.scale} elements", where=size.name,
                     remedy="give a larger scale or a smaller batch")  # fmt: skip


def _place(random: Random, rule: Rule, values: Sequence[Value], unused: set[int], size: RandomGraph) -> Node | None:
    """An op of this rule on the first inputs it fits; None if on none of those tried."""
    for inputs in _inputs(random, rule.arity, len(values), unused):
        op = rule.propose(random, *(values[i] for i in inputs))
        if op is not None and _fits(op, size):
            return Node(op, inputs)
    return None


def _inputs(random: Random, arity: int, number: int, unused: set[int]) -> Iterator[tuple[int, ...]]:
    """Inputs to try: one first input, with every second one in random order."""
    first = random.choice(sorted(unused)) if random.random() < UNUSED_SHARE else random.randrange(number)
    others = [random.sample(range(number), number) for _ in range(arity - 1)]
    yield from ((first, *rest) for rest in product(*others))


def _fits(op: Op, size: RandomGraph) -> bool:
    elements = prod(op.output.shape)
    small = elements <= size.scale and op.work <= WORK_PER_ELEMENT * size.scale
    return small and elements >= LEAST_ELEMENTS and op.output.bound <= LARGEST_BOUND


class Program(nn.Module):
    """Runs the ops; the loss is how far the weighed means of all values that no op used are from 1."""

    def __init__(self, inputs: Sequence[Value], nodes: Sequence[Node]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, EMBEDDED)
        self.ops = nn.ModuleList(node.op.build() for node in nodes)
        self.inputs = [node.inputs for node in nodes]
        used = {i for node in nodes for i in node.inputs}
        tokens, last = len(inputs) - 1, len(inputs) + len(nodes)
        self.ends = [i for i in range(tokens, last) if i not in used]  # embedded tokens too: all weights get a gradient
        self.weights = nn.Parameter(torch.full((len(self.ends),), 0.1))

    def forward(self, image: torch.Tensor, vectors: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """The loss, [] float32."""
        values = [image, vectors, self.embedding(tokens)]
        for op, inputs in zip(self.ops, self.inputs, strict=True):
            values.append(op(*(values[i] for i in inputs)))
        means = torch.stack([values[i].float().mean() for i in self.ends])  # [ends]
        return (torch.dot(means, self.weights) - 1).square()
