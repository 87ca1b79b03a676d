"""In which order a stage runs the passes of its micro-batches.

    1F1B, 2 stages, 3 micro-batches          GPipe                                ZB-H1: W is the gradient of weights
    stage 0   F0 F1 B0 F2 B1    B2           F0 F1 F2          B2 B1 B0           F0 F1 B0 W0 F2 B1 W1 B2 W2
    stage 1      F0 B0 F1 B1 F2 B2              F0 F1 F2 B2 B1 B0                    F0 B0 F1 B1 W0 F2 B2 W1 W2

docs/concepts/search.md has the bubble of each order.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache

import numpy as np

# Orders of a pipeline's passes, and which part of the model is where.
#
# 1F1B, 2 stages       0 | 1         interleaved, 2 chunks   0 2 | 1 3        ZB-V, DualPipeV   0 3 | 1 2


class Pipeline(StrEnum):
    """Order of a stage's forward and backward passes (gnnperf.generate.transformer.passes)."""

    GPIPE = "gpipe"  # Huang et al. 2019
    ONE_F_ONE_B = "1f1b"  # Narayanan et al. 2019, PipeDream-flush
    INTERLEAVED = "interleaved"  # Narayanan et al. 2021, section 2.2
    BREADTH_FIRST = "breadth_first"  # Lamy-Poirier 2023 (arXiv 2211.05953): all micro-batches through a chunk
    ZB_H1 = "zb_h1"  # Qi et al. 2023 (arXiv 2401.10241): gradients of weights fill the bubble
    ZB_H2 = "zb_h2"  # the same with more micro-batches in flight
    ZB_V = "zb_v"  # ibid., section 6: two chunks of a stage, there and back
    DUAL_PIPE_V = "dualpipe_v"  # DeepSeek-AI 2024 (arXiv 2412.19437), cut in half: one direction, there and back
    NO_FLUSH = "pipedream_2bw"  # Narayanan et al. 2021 (arXiv 2006.09503): 1F1B that steps do not interrupt

    @property
    def there_and_back(self) -> bool:
        """Whether the second chunks lie in the reverse order of stages, so that the first stage has both ends."""
        return self in (Pipeline.ZB_V, Pipeline.DUAL_PIPE_V)

    @property
    def flushes(self) -> bool:
        """Whether a step's update waits for all of its passes, and the passes of the next step for the update."""
        return self is not Pipeline.NO_FLUSH

    @property
    def keeps_all(self) -> bool:
        """Whether all micro-batches are in flight at once."""
        return self in (Pipeline.GPIPE, Pipeline.BREADTH_FIRST)

    @property
    def splits_backward(self) -> bool:
        """Whether gradients of inputs and of weights may be passes of their own."""
        return self in (Pipeline.ZB_H1, Pipeline.ZB_H2) or self.there_and_back

    @property
    def warm_up(self) -> int:
        """Micro-batches per stage until every one takes the same time."""
        return 2 if self is Pipeline.ZB_H2 or self.there_and_back else 1

    def allows(self, chunks: int) -> bool:
        """Whether a stage may hold so many parts of the model."""
        if self in (Pipeline.INTERLEAVED, Pipeline.BREADTH_FIRST):
            return chunks > 1
        return chunks == 1 + self.there_and_back


@dataclass(frozen=True)
class Order:
    """What the order of passes depends on."""

    pipeline: Pipeline
    # stages, micro_batches, chunks: of a replica; chunks of each stage
    stages: int
    micro_batches: int
    chunks: int = 1

    @property
    def parts(self) -> int:
        """Of the model, over all stages."""
        return self.stages * self.chunks

    def part(self, stage: int, chunk: int) -> int:
        """Of the model, that is a chunk of a stage: chunk i of all stages follows chunk i - 1 of all."""
        return chunk * self.stages + (self.stages - 1 - stage if self.returns(chunk) else stage)

    def stage(self, part: int) -> int:
        """Where a part of the model is."""
        chunk, place = divmod(part, self.stages)
        return self.stages - 1 - place if self.returns(chunk) else place

    def returns(self, chunk: int) -> bool:
        """Whether micro-batches go from the last stage to the first one through a chunk."""
        return chunk % 2 == 1 and self.pipeline.there_and_back


class Gradient(StrEnum):
    """What a backward pass computes."""

    BOTH = "both"
    INPUT = "input"  # B: what the stage before waits for
    WEIGHTS = "weights"  # W: what nothing but the update waits for


@dataclass(frozen=True)
class Pass:
    """One micro-batch through one chunk of a stage, forward or backward."""

    backward: bool  # or forward
    micro_batch: int  # which, from 0
    chunk: int = 0  # of the stage, from 0
    gradient: Gradient = Gradient.BOTH  # of a backward pass


def stage_passes(order: Order, stage: int) -> tuple[Pass, ...]:
    """Of one stage, in order: of the first step, which 1F1B starts without a flush (later ones: `steady_passes`)."""
    stages, count, chunks = order.stages, order.micro_batches, order.chunks
    if order.pipeline is Pipeline.GPIPE:
        return (*(Pass(False, i) for i in range(count)), *(Pass(True, i) for i in reversed(range(count))))
    if order.pipeline is Pipeline.BREADTH_FIRST:
        return tuple(each for backward in (False, True) for each in _chunked(count, count, chunks, backward=backward))
    if order.pipeline is Pipeline.INTERLEAVED:
        forward, backward = (_chunked(stages, count, chunks, backward=backward) for backward in (False, True))
        return _alternating(forward, backward, min(2 * (stages - stage - 1) + (chunks - 1) * stages, count * chunks))
    if order.pipeline is Pipeline.ZB_H1:
        return _zero_bubble(count, warm=stages - stage, delay=stage)
    if order.pipeline is Pipeline.ZB_H2:
        return _zero_bubble(count, warm=2 * (stages - stage) - 1, delay=2 * stage)
    if order.pipeline is Pipeline.ZB_V:
        return _phased(count, _zb_v(stages, stage, max(count, 2 * stages - 1)))
    if order.pipeline is Pipeline.DUAL_PIPE_V:
        return _phased(count, _dual_pipe_v(stages, stage, max(count, 2 * stages)))
    ahead, back = (tuple(Pass(backward, i) for i in range(count)) for backward in (False, True))
    return _alternating(ahead, back, min(stages - stage - 1, count))


def _alternating(forward: tuple[Pass, ...], backward: tuple[Pass, ...], warm: int) -> tuple[Pass, ...]:
    """`warm` passes forward, then one forward and one backward, then what is left backward."""
    pairs = zip(forward[warm:], backward, strict=False)
    return (*forward[:warm], *(each for pair in pairs for each in pair), *backward[len(forward) - warm :])


def _chunked(round_size: int, count: int, chunks: int, *, backward: bool) -> tuple[Pass, ...]:
    """`round_size` micro-batches through one chunk, then through the next; backward from the last chunk."""
    result = []
    for k in range(count * chunks):
        round_, place = divmod(k, round_size * chunks)
        chunk, within = divmod(place, round_size)
        result.append(Pass(backward, round_ * round_size + within, chunks - 1 - chunk if backward else chunk))
    return tuple(result)


def _zero_bubble(count: int, *, warm: int, delay: int) -> tuple[Pass, ...]:
    """`warm` forward, then B, W and F in turn; W runs `delay` micro-batches behind B, so that its stage never waits.

    Qi et al. 2023, section 2: with H1 a stage holds no more micro-batches than with 1F1B, with H2 about twice as many.
    """
    warm = min(warm, count)
    result = [Pass(False, i) for i in range(warm)]
    for i in range(count):
        result.append(Pass(True, i, gradient=Gradient.INPUT))
        if i >= delay:
            result.append(Pass(True, i - delay, gradient=Gradient.WEIGHTS))
        if warm + i < count:
            result.append(Pass(False, warm + i))
    left = range(max(count - delay, 0), count)
    return (*result, *(Pass(True, i, gradient=Gradient.WEIGHTS) for i in left))


# Orders as tables: how often, and which passes of chunk 0 and 1. F: forward; B: both gradients; I: of inputs; W: of
# weights, without a chunk the oldest that is left. Micro-batches of each kind follow one another.
Phases = tuple[tuple[int, str], ...]


def _zb_v(stages: int, stage: int, count: int) -> Phases:
    """Qi et al. 2023, section 6, as torch.distributed.pipelining has it (ScheduleZBVZeroBubble)."""
    left = stages - stage
    return (
        (2 * left - 1, "F0"), (stage, "F1 F0"), (left, "F1 I1 W1"),
        (count - stages - left + 1, "F0 I0 W0 F1 I1 W1"), (left - 1, "I0 W0 F1 I1 W1"),
        (stage, "I0 I1"), (left, "I0 W0"), (stage, "W1"), (stage, "W0"),
    )  # fmt: skip


def _dual_pipe_v(stages: int, stage: int, count: int) -> Phases:
    """DualPipe of twice as many stages, cut in half (dualpipev.py of DeepSeek-AI; torch's ScheduleDualPipeV).

    DualPipe on p stages runs the same passes on half of its stages, and the mirrored ones on the other half, with the
    same parameters: it is this order with p / 2 stages and twice as many replicas.
    """
    left, half = stages - stage - 1, (stage + 1) // 2
    return (
        (2 * left, "F0"), (stage + 1, "F0 F1"), (left, "I1 W F1"),
        (count - stages - left, "F0 B1 F1 B0"), (left, "B1 F1 B0"),
        (half, "B1 B0"), ((stage + 1) % 2, "B1 I0"), (half, "I1 I0"), (left, "W I0"), (stage + 1, "W"),
    )  # fmt: skip


def _phased(count: int, phases: Phases) -> tuple[Pass, ...]:
    """The passes of a table; of micro-batches beyond `count`, with which the table fills the pipeline, none."""
    done: Counter[tuple[bool, int]] = Counter()
    left: list[Pass] = []
    result = []
    for kind in (kind for times, kinds in phases for kind in kinds.split() * times):
        if kind[0] == "W":
            each = next(one for one in left if kind[1:] in ("", str(one.chunk)))
            left.remove(each)
            result.append(replace(each, gradient=Gradient.WEIGHTS))
            continue
        backward, chunk = kind[0] != "F", int(kind[1:])
        gradient = Gradient.INPUT if kind[0] == "I" else Gradient.BOTH
        result.append(Pass(backward, done[backward, chunk], chunk, gradient))
        done[backward, chunk] += 1
        left += result[-1:] if kind[0] == "I" else []
    return tuple(each for each in result if each.micro_batch < count)


# When passes run: each after the one before it on its stage, and after the pass of another stage that it takes from.

NONE = -1


@dataclass(frozen=True)
class PassKind:
    """Passes that differ in their micro-batch only."""

    stage: int  # that runs them
    each: Pass  # the pass, as that of micro-batch 0
    # first, final: whether it is the first or last of its stage and chunk in its direction
    first: bool
    final: bool


@dataclass(frozen=True)
class Steps:
    """All passes of a step in an order in which what a pass waits for comes before it."""

    kinds: tuple[PassKind, ...]  # distinct ones
    passes: tuple[Pass, ...]  # of all stages
    kind: tuple[int, ...]  # place of each pass's kind among `kinds`
    before: tuple[int, ...]  # place of the pass before it on its stage; NONE: it is the stage's first
    source: tuple[int, ...]  # place of the pass whose result it takes; NONE: the model's input

    @cached_property
    def stage(self) -> np.ndarray:
        """[num_kinds] of each kind."""
        return np.array([kind.stage for kind in self.kinds])

    @cached_property
    def counts(self) -> np.ndarray:
        """[num_kinds] passes of each kind."""
        return np.bincount(self.kind, minlength=len(self.kinds))

    @cached_property
    def between(self) -> np.ndarray:
        """[num_kinds] bool: neither first nor last."""
        return np.array([not (kind.first or kind.final) for kind in self.kinds])

    @cached_property
    def last_gradients(self) -> np.ndarray:
        """[n] kinds of the last passes backward through the first chunks."""
        return np.flatnonzero([kind.final and kind.each.backward and not kind.each.chunk for kind in self.kinds])

    @cached_property
    def first_last(self) -> tuple[np.ndarray, np.ndarray]:
        """[stages] each: place of the first and the last pass of each stage."""
        stage, num = self.stage[np.array(self.kind)], len(self.kind)
        _, last = np.unique(stage[::-1], return_index=True)
        return np.unique(stage, return_index=True)[1], num - 1 - last

    def ends_us(self, length_us: Sequence[float]) -> list[float]:
        """[num_passes] when each ends, of kinds of passes that take `length_us` [num_kinds]."""
        result: list[float] = []
        for kind, before, source in zip(self.kind, self.before, self.source, strict=True):
            begin = result[before] if before >= 0 else 0.0
            if source >= 0 and result[source] > begin:
                begin = result[source]
            result.append(begin + length_us[kind])
        return result


@lru_cache(maxsize=4096)
def steps(order: Order) -> Steps:
    """All passes of all stages."""
    waiting = [flagged_passes(order, stage) for stage in range(order.stages)]
    placed: list[tuple[PassKind, Pass, int, int]] = []
    done: dict[tuple[str, int, int], int] = {}
    latest, at = [NONE] * order.stages, [0] * order.stages
    known: dict[tuple[object, ...], PassKind] = {}
    while len(placed) < sum(map(len, waiting)):
        begun = len(placed)
        for stage, own in enumerate(waiting):
            while at[stage] < len(own):
                each, first, final = own[at[stage]]
                source = _source(order, stage, each)
                if source is not None and source not in done:
                    break
                done[_result(order, stage, each)] = len(placed)
                key = (stage, each.backward, each.chunk, each.gradient, first, final)
                if key not in known:
                    known[key] = PassKind(stage, replace(each, micro_batch=0), first, final)
                placed.append((known[key], each, latest[stage], NONE if source is None else done[source]))
                latest[stage] = len(placed) - 1
                at[stage] += 1
        assert len(placed) > begun, "an order of passes that waits for itself"
    number = {id(kind): i for i, kind in enumerate(known.values())}
    kinds, each_, before, sources = zip(*placed, strict=True)
    return Steps(tuple(known.values()), each_, tuple(number[id(kind)] for kind in kinds), before, sources)


def steady_passes(order: Order, stage: int) -> tuple[Pass, ...]:
    """Of one stage between two updates, as every step but the first one has them.

    Without a flush the first forward passes belong to the step before, and the last ones to the next:

        stage 0 of 2, 3 micro-batches   F1 B0 F2 B1 F0 B2 update      F1's result goes to stage 1 in the same step
        stage 1                         F0 B0 F1 B1 F2 B2 update      F0's came from the step before
    """
    if order.pipeline.flushes:
        return stage_passes(order, stage)
    ahead, count = order.stages - stage - 1, order.micro_batches
    return tuple(each for i in range(count) for each in (Pass(False, (i + ahead) % count), Pass(True, i)))


def flagged_passes(order: Order, stage: int) -> list[tuple[Pass, bool, bool]]:
    """Steady passes, with whether each is its chunk's first and last: forward, with gradients of weights, without."""
    own = steady_passes(order, stage)
    kinds = [(each.backward, each.chunk, each.gradient is Gradient.INPUT) for each in own]
    ends = dict(zip(kinds, own, strict=True))
    starts = dict(zip(reversed(kinds), reversed(own), strict=True))
    return [(each, starts[kind] is each, ends[kind] is each) for kind, each in zip(kinds, own, strict=True)]


def _result(order: Order, stage: int, each: Pass) -> tuple[str, int, int]:
    kind = str(each.gradient) if each.gradient is Gradient.WEIGHTS else "backward" if each.backward else "forward"
    return kind, each.micro_batch, order.part(stage, each.chunk)


def comes_from_step_before(order: Order, stage: int, each: Pass) -> bool:
    """Whether a pass takes what another stage has sent in the step before: the first one forward without a flush."""
    ahead = (order.stages - stage - 1) % order.micro_batches
    return not (order.pipeline.flushes or each.backward) and stage > 0 and each.micro_batch == ahead


def _source(order: Order, stage: int, each: Pass) -> tuple[str, int, int] | None:
    part = order.part(stage, each.chunk)
    if comes_from_step_before(order, stage, each):
        return None
    if not each.backward:
        return ("forward", each.micro_batch, part - 1) if part else None
    if each.gradient is Gradient.WEIGHTS:
        return "backward", each.micro_batch, part
    if part == order.parts - 1:
        return "forward", each.micro_batch, part
    return "backward", each.micro_batch, part + 1
