"""ConvolutionConstants: what the forms of convolutions take as given beside those of products, and their YAML form."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from gnnperf.analytic.constant_values import exactly, positive
from gnnperf.core.files import write_text
from gnnperf.hardware.conf_folders import conf_dir
from gnnperf.hardware.strict_yaml import read_yaml, yaml_text

FILE = "convolution.yaml"
PROVENANCE = "provenance"
SIGNIFICANT = 4  # digits in the file


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

    fused_factor: float
    weight_factor: float
    unfused_factor: float
    transform_factor: float
    call_us: float
    growth_us: float
    provenance: str = ""


NUMBERS = tuple(f.name for f in fields(ConvolutionConstants) if f.name != PROVENANCE)


@cache
def default_convolution_constants() -> ConvolutionConstants:
    """The constants that ship, conf/analytic/convolution.yaml."""
    return load_convolution_constants(conf_dir("analytic") / FILE)


def load_convolution_constants(path: Path) -> ConvolutionConstants:
    """Read constants.

    Raises:
        InputError: not readable, an unknown or missing key, or a value that is no positive number.
    """
    raw = exactly(read_yaml(path), (PROVENANCE, *NUMBERS), str(path))
    numbers = {name: positive(raw[name], f"{path}, key '{name}'") for name in NUMBERS}
    return ConvolutionConstants(**numbers, provenance=str(raw[PROVENANCE]))


def save_convolution_constants(constants: ConvolutionConstants, path: Path) -> None:
    """Write constants as YAML: beside `path`, then renamed."""
    numbers = {name: float(f"{getattr(constants, name):.{SIGNIFICANT}g}") for name in NUMBERS}
    raw = {PROVENANCE: constants.provenance, **numbers}
    write_text(path, yaml_text(raw))
