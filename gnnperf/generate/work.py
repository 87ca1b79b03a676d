"""What a step works on, which rates and costs are counted by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepWork:
    """Of one step, over all ranks. None: unknown.

    Attributes:
        samples: sequences, images, or rows of a recommendation model.
        tokens: of all samples.
        model_flops: that the forward and the backward pass need, without recomputation.
        hardware_flops: those, and what is computed again.
        dtype: of the matrix products.
        formula: how the FLOPs are counted, in words; "" they are unknown.
    """

    samples: float | None = None
    tokens: float | None = None
    model_flops: float | None = None
    hardware_flops: float | None = None
    dtype: str | None = None
    formula: str = ""
