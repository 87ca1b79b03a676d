"""What each rank of a recommendation plan holds: tables with optimizer state, perceptrons, and the tensors of a step.

    always     own parts of tables, their optimizer state (fused with the backward pass: no gradients), both perceptrons
               with state, DDP's buckets
    the step   indices, vectors of the own tables for all samples, vectors of all tables for the own samples, what the
               perceptrons and the interaction keep, gradients of vectors, sorted indices

Gradients of replicated tables are as large as the tables (no fused update: ranks have to agree).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from gnnperf.analytic import LOOK_UP, UPDATE
from gnnperf.generate.recommendation.lookups import (
    INDEX_BYTES,
    LENGTH_BYTES,
    SORTED_BYTES,
    Shared,
    shared_by_all,
    summed_width,
)
from gnnperf.generate.recommendation.network import bottom_widths, crossed_width, top_widths, vectors
from gnnperf.generate.recommendation.plan import (
    FLOAT_BYTES,
    STATES,
    Interaction,
    Part,
    RecommendationPlan,
    Travel,
    here,
)
from gnnperf.generate.transformer.items import Op
from gnnperf.generate.uses import Pair, RankTensors, Stretch, Use, use
from gnnperf.graph import DTYPE_BYTES

ASSUMED = "The loader holds one batch, and names hold no tensor beyond its last use"
Uses = list[Use]


def recommendation_tensors(plan: RecommendationPlan) -> tuple[RankTensors, ...]:
    """One account for each set of ranks that hold the same, given for the first of them."""
    shared, result = shared_by_all(plan), {}
    for rank in range(plan.ranks):
        parts = tuple(part for part in shared.parts if rank in part.ranks)
        key = tuple((p.table.name, p.rows, p.dim) for p in parts)
        if key not in result:
            result[key] = _rank(shared, rank, parts)
    return tuple(result.values())


def _rank(shared: Shared, rank: int, parts: tuple[Part, ...]) -> RankTensors:
    plan = shared.plan
    step = _Step(shared, rank).uses()
    dense = _dense_bytes(plan)
    tables = tuple(p.rows * p.dim * FLOAT_BYTES for p in parts)
    state = tuple(p.rows * p.state_bytes_per_row(plan.model.optimizer) for p in parts)
    return RankTensors(
        rank, (*dense, *tables), (), (*(n for n in dense for _ in range(STATES[plan.model.optimizer])), *state),
        (Stretch(Pair(tuple(step), ()), False),), _inputs(shared, rank), dense if plan.ranks > 1 else (), (ASSUMED,),
    )  # fmt: skip


def _dense_bytes(plan: RecommendationPlan) -> tuple[int, ...]:
    """Weights and biases of both perceptrons."""
    layers = (*pairwise(bottom_widths(plan.model)), *pairwise(top_widths(plan.model)))
    return tuple(n * FLOAT_BYTES for inputs, outputs in layers for n in (inputs * outputs, outputs))


def _inputs(shared: Shared, rank: int) -> tuple[int, ...]:
    """Numbers, labels, indices and lengths of the own samples of all tables."""
    plan = shared.plan
    indices = sum(part.table.pooling for part in shared.parts)
    lengths = len(shared.parts) * plan.samples * LENGTH_BYTES
    numbers = plan.samples * plan.model.dense_features * FLOAT_BYTES
    return numbers, plan.samples * FLOAT_BYTES, round(plan.samples * indices) * INDEX_BYTES, lengths


@dataclass(frozen=True)
class _Step:
    """The tensors of one rank's step, in the order of `rank_program`."""

    shared: Shared
    rank: int

    @property
    def plan(self) -> RecommendationPlan:
        """See there."""
        return self.shared.plan

    def uses(self) -> Uses:
        """All ops."""
        return [
            *self._indices(),
            *self._lookups(),
            *self._perceptron("bottom", "numbers"),
            *self._summed_up(),
            *self._interaction(),
            *self._perceptron("top", "crossed"),
            *self._loss(),
            *self._perceptron_backward("top"),
            *self._interaction_backward(),
            *self._gradients_of_vectors(),
            *self._perceptron_backward("bottom"),
            *self._updates(),
        ]

    def _held(self, travel: Travel) -> tuple[Part, ...]:
        return here(self.shared.parts, self.rank, travel)

    def _indices(self) -> Iterator[Use]:
        """Own samples' indices in the holders' order, sent, and put in the order of tables."""
        yield use("data", numbers=0, own_indices=0)  # counted among the inputs
        requested, samples = self.shared.indices, self.plan.samples
        if not requested.any():
            return
        by_row = sum(p.indices * len(p.ranks) for p in self.shared.parts if p.added_up > 1 or p.travel is Travel.SUMMED)
        sent = round(samples * requested.sum()) * INDEX_BYTES
        if by_row:
            yield use("fbgemm::block_bucketize_sparse_features", "own_indices",
                      bucketed=round(samples * by_row) * INDEX_BYTES)  # fmt: skip
        yield use("fbgemm::permute_2D_sparse_data", "bucketed" if by_row else "own_indices", permuted=sent)
        mine = round(self.plan.batch * requested[self.rank]) * INDEX_BYTES
        yield use("all_to_all", "permuted", arrived=mine)
        if requested[self.rank]:
            yield use("fbgemm::permute_2D_sparse_data", "arrived", indices=mine)

    def _lookups(self) -> Iterator[Use]:
        """Vectors of own tables, of all samples or of the own ones; then those of all tables of the own samples."""
        for travel in Travel:
            if held := self._held(travel):
                size = sum(p.dim * p.samples(self.plan.batch, self.plan.ranks) for p in held) * FLOAT_BYTES
                indices = "own_indices" if travel is Travel.STAYS else "indices"
                yield use(LOOK_UP, indices, **{f"looked_up_{travel}": size})
        samples, summed = self.plan.samples, summed_width(self.shared.parts)
        if self.shared.elements.any():
            yield use("all_to_all", self._known("looked_up", Travel.POOLED),
                      vectors_pooled=round(samples * self.shared.elements.sum()) * FLOAT_BYTES)  # fmt: skip
        if summed:
            yield use(
                "reduce_scatter", self._known("looked_up", Travel.SUMMED), vectors_summed=samples * summed * FLOAT_BYTES
            )

    def _known(self, name: str, travel: Travel) -> str:
        return f"{name}_{travel}" if self._held(travel) else ""

    def _summed_up(self) -> Iterator[Use]:
        """Partial sums of rows that lie on a part of the ranks."""
        width = sum(p.dim for p in self.shared.parts if p.added_up > 1)
        if width:
            size = self.plan.samples * width * FLOAT_BYTES
            yield use("triton_poi_fused_sum_of_parts", "vectors_pooled", vectors_parts=size)

    def _vectors(self) -> str:
        """Names of what interacts, next to the bottom perceptron's result."""
        names = [self._known("looked_up", Travel.STAYS)]
        names += ["vectors_pooled"] if self.shared.elements.any() else []
        names += ["vectors_parts"] if any(p.added_up > 1 for p in self.shared.parts) else []
        names += ["vectors_summed"] if summed_width(self.shared.parts) else []
        return " ".join(filter(None, names))

    def _widths(self, name: str) -> tuple[int, ...]:
        return bottom_widths(self.plan.model) if name == "bottom" else top_widths(self.plan.model)

    def _result(self, name: str) -> str:
        return f"{name}_{len(self._widths(name)) - 2}"

    def _perceptron(self, name: str, takes: str) -> Iterator[Use]:
        """Linear layers; each result is kept for the layer after it and for its own backward pass."""
        widths, samples, dtype = self._widths(name), self.plan.samples, self.plan.model.dtype
        item, cast = DTYPE_BYTES[dtype], dtype != "float32"
        for place, (inputs, outputs) in enumerate(pairwise(widths)):
            weight = f"{name}_weight_{place}"
            given = takes
            if cast:
                if place == 0:
                    yield use("aten::copy_", takes, **{f"{name}_in": samples * inputs * item})
                    given = f"{name}_in"
                yield use("aten::copy_", "", **{weight: inputs * outputs * item})
            yield use("aten::addmm", f"{given} {weight}" if cast else given, linear=samples * outputs * item)
            last = place == len(widths) - 2 and name == "top"
            takes = f"{name}_{place}"
            yield use("aten::sigmoid" if last else "aten::relu", "linear", **{takes: samples * outputs * item})

    def _interaction(self) -> Iterator[Use]:
        """Products of all pairs, or vectors side by side."""
        plan, model = self.plan, self.plan.model
        samples, width, crossed = plan.samples, model.bottom[-1], crossed_width(model)
        joined = samples * (width + crossed) * FLOAT_BYTES
        bottom, given = self._result("bottom"), self._vectors()
        if model.interaction is Interaction.CAT:
            yield use("aten::cat", f"{bottom} {given}", crossed=joined)
            return
        number = vectors(model)
        yield use("aten::cat", f"{bottom} {given}", stacked=samples * number * width * FLOAT_BYTES)
        yield use("aten::bmm", "stacked", square=samples * number * number * FLOAT_BYTES)
        yield use("aten::index", "square", pairs=samples * crossed * FLOAT_BYTES)
        yield use("aten::cat", f"{bottom} pairs", crossed=joined)

    def _loss(self) -> Iterator[Use]:
        logits, probabilities = self.plan.samples * FLOAT_BYTES, self._result("top")
        yield use("aten::binary_cross_entropy", probabilities, loss=FLOAT_BYTES)
        yield use("aten::binary_cross_entropy_backward", f"loss {probabilities}", d_probabilities=logits)
        yield use("triton_poi_fused_sigmoid_backward", f"d_probabilities {probabilities}", d_top=logits)

    def _perceptron_backward(self, name: str) -> Iterator[Use]:
        """Gradients of parameters stay, and go into DDP's buckets."""
        widths, samples, dtype = self._widths(name), self.plan.samples, self.plan.model.dtype
        item, cast = DTYPE_BYTES[dtype], dtype != "float32"
        first = "crossed" if name == "top" else "numbers"
        for place in range(len(widths) - 2, -1, -1):
            inputs, outputs = widths[place], widths[place + 1]
            yield use("aten::threshold_backward", f"d_{name} {name}_{place}", d_linear=samples * outputs * item)
            weight = f" {name}_weight_{place}" if cast else ""
            if place or name == "top":
                yield use("aten::mm", f"d_linear{weight}", **{f"d_{name}": samples * inputs * item})
            data = f"{name}_{place - 1}" if place else f"{name}_in" if cast else first
            yield Use("aten::mm", ("d_linear", data), (), (inputs * outputs * FLOAT_BYTES,))
            yield Use("aten::sum", ("d_linear",), (), (outputs * FLOAT_BYTES,))
            if self.plan.ranks > 1:
                yield from (use("aten::mul"), use("aten::mul"))  # into the bucket

    def _interaction_backward(self) -> Iterator[Use]:
        plan, model = self.plan, self.plan.model
        samples, width, number = plan.samples, model.bottom[-1], vectors(model)
        if model.interaction is Interaction.CAT:
            yield use("views", "d_top", d_vectors=0, d_bottom=0)  # parts of it
            return
        square, stacked = samples * number * number * FLOAT_BYTES, samples * number * width * FLOAT_BYTES
        yield use("aten::zero_", "", d_square=square)
        yield use("aten::_index_put_impl_", "d_square d_top")
        yield use("aten::bmm", "d_square stacked", d_left=stacked)
        yield use("aten::bmm", "d_square stacked", d_right=stacked)
        yield use("aten::add", "d_left d_right", d_vectors=stacked)
        yield use("aten::add", "d_vectors d_top", d_bottom=samples * width * FLOAT_BYTES)

    def _gradients_of_vectors(self) -> Iterator[Use]:
        """Back to the holders: of all samples for the own tables."""
        batch, summed = self.plan.batch, summed_width(self.shared.parts)
        if self.shared.elements.any():
            size = round(batch * self.shared.elements[self.rank]) * FLOAT_BYTES
            yield use("all_to_all", "d_vectors", gradients_pooled=size)
        if summed:
            yield use("all_gather", "d_vectors", gradients_summed=batch * summed * FLOAT_BYTES)

    def _updates(self) -> Iterator[Use]:
        """Indices sorted by row and gradients merged; replicated tables have gradients of their own."""
        for travel in Travel:
            held = self._held(travel)
            replicated = travel is Travel.STAYS and self.plan.ranks > 1
            if not held or replicated:
                continue
            lookups = sum(p.lookups(self.plan.batch, self.plan.ranks) for p in held)
            stays = travel is Travel.STAYS
            indices, gradient = ("own_indices", "d_vectors") if stays else ("indices", f"gradients_{travel}")
            yield use("fbgemm::linearize_index", indices, rows=lookups * INDEX_BYTES)
            yield use("fbgemm::transpose_embedding_input", "rows", sorted_rows=2 * lookups * SORTED_BYTES)
            yield use(UPDATE, f"{indices} {gradient} sorted_rows")
        if self.plan.ranks > 1:
            for part in self._held(Travel.STAYS):
                size = part.rows * part.dim * FLOAT_BYTES
                yield Use("aten::_embedding_bag_dense_backward", ("d_vectors", "own_indices"), (), (size,))
        yield use(self._optimizer())

    def _optimizer(self) -> str:
        (item,) = self.shared.update
        assert isinstance(item, Op), "one kernel"
        return item.name
