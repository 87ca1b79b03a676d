"""The shipped networks as sizes alone would have them kept, without asking other generations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from gnnperf.gnn.pretrain.op_checkpoint import KindAnswer, OpCheckpoint, load_op_checkpoint
from gnnperf.predict.pretrained import PretrainedPredictor


@dataclass(frozen=True)
class BySizesAlone(PretrainedPredictor):
    """Every kind is answered on every GPU that trained on it, with the share that held-out sizes chose."""

    @cached_property
    def checkpoint(self) -> OpCheckpoint:
        """The file with other answers."""
        return by_sizes_alone(load_op_checkpoint(self.path))


def by_sizes_alone(checkpoint: OpCheckpoint) -> OpCheckpoint:
    """The same networks, asked wherever held-out sizes say so."""
    lines = checkpoint.provenance["sizes"]
    answers = tuple(
        KindAnswer(kind, tuple(one["device"] for one in lines if one["kind"] == kind),
                   next(one["share"] for one in lines if one["kind"] == kind), 0.0)
        for kind in dict.fromkeys(one["kind"] for one in lines)
    )  # fmt: skip
    return replace(checkpoint, answers=answers)
