"""ConvolutionConstants: what the forms of convolutions take as given beside those of products."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

from gnnperf.analytic.constants_file import AboveZero, read_constants
from gnnperf.hardware import conf_dir

CONVOLUTION_FILE = "convolution.yaml"


@dataclass(frozen=True)
class ConvolutionConstants:
    """Constants of Winograd's forms, and of how the rows that they were fitted on were measured.

    Attributes:
        fused_factor: time of the products inside the fused kernel over that of such products alone.
        weight_factor: time of the fused form's transform of the weight over that of streaming it in and out.
        unfused_factor: time of the batch of products between separate transforms over that of such a batch alone.
        transform_factor: time of these transforms over that of streaming what they read and write.
        call_us: host time of a first call between two events, all before the kernel starts, on the typical host.
        growth_us: by which every size that was called before lengthens it.
        provenance: where the numbers come from.
    """

    fused_factor: AboveZero
    weight_factor: AboveZero
    unfused_factor: AboveZero
    transform_factor: AboveZero
    call_us: AboveZero
    growth_us: AboveZero
    provenance: str = ""


NUMBERS = tuple(f.name for f in fields(ConvolutionConstants) if f.name != "provenance")


@cache
def default_convolution_constants() -> ConvolutionConstants:
    """The constants that ship, conf/analytic/convolution.yaml."""
    return read_constants(conf_dir("analytic") / CONVOLUTION_FILE, ConvolutionConstants)
