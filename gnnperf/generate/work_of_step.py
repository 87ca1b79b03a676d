"""Samples, tokens and FLOPs of one step."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepWork:
    """Over all ranks. None: unknown."""

    samples: float | None = None  # sequences, images, or rows of a recommendation model
    tokens: float | None = None  # of all samples
    model_flops: float | None = None  # that the forward and the backward pass need, without recomputation
    hardware_flops: float | None = None  # those, and what is computed again
    dtype: str | None = None  # of the matrix products
    formula: str = ""  # how the FLOPs are counted, in words; "" they are unknown
