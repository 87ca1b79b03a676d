"""Orders of a pipeline's passes, and which part of the model is where.

1F1B, 2 stages       0 | 1         interleaved, 2 chunks   0 2 | 1 3        ZB-V, DualPipeV   0 3 | 1 2
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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

    @property
    def there_and_back(self) -> bool:
        """Whether the second chunks lie in the reverse order of stages, so that the first stage has both ends."""
        return self in (Pipeline.ZB_V, Pipeline.DUAL_PIPE_V)

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
