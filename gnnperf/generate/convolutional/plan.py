"""What is requested of a residual network that never ran: its layers, how a rank trains it, over how many replicas."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gnnperf.core import require
from gnnperf.hardware import keys_in, section

DTYPES = ("float32", "float16", "bfloat16")
MEBIBYTE = 1 << 20
WIDENED = 4  # a bottleneck gives so many times its inner channels (He et al. 2016, table 1)
MAX_BLOCKS = 10_000


class Block(StrEnum):
    """What a residual block is made of (He et al. 2016, figure 5)."""

    BASIC = "basic"  # two 3 x 3 convolutions
    BOTTLENECK = "bottleneck"  # 1 x 1 to few channels, 3 x 3, 1 x 1 to four times as many


class NetworkOptimizer(StrEnum):
    """How SGD with momentum and weight decay goes over parameters (torch.optim.SGD)."""

    FOREACH = "foreach"  # lists of tensors: torch's default on GPUs
    FUSED = "fused"  # one op


@dataclass(frozen=True)
class Network:
    """A residual network with batch norms."""

    block: Block  # of every stage
    # blocks, widths, strides: of each stage: number of blocks, inner channels, stride of the first block. In a
    # bottleneck its 3 x 3 convolution has it, as torchvision and NVIDIA do ("v1.5").
    blocks: tuple[int, ...]
    widths: tuple[int, ...] = (64, 128, 256, 512)
    strides: tuple[int, ...] = (1, 2, 2, 2)
    classes: int = 1000  # of the output layer
    image: int = 224  # height and width
    # stem_channels, stem_kernel, stem_stride: of the first convolution
    stem_channels: int = 64
    stem_kernel: int = 7
    stem_stride: int = 2
    stem_pool: bool = True  # a 3 x 3 maximum with stride 2 after it
    shortcut_norm: bool = True  # convolutions of shortcuts have a batch norm; else a bias
    inplace: bool = True  # activations and sums overwrite their input

    def __post_init__(self) -> None:
        for name in ("blocks", "widths", "strides"):
            result = getattr(self, name)
            require(bool(result) and min(result) >= 1, f"network.{name}", list(result), "whole numbers from 1 up")
            require(len(result) == len(self.blocks), f"network.{name}", list(result),
                    f"one per stage, {len(self.blocks)} as network.blocks has")  # fmt: skip
        require(sum(self.blocks) <= MAX_BLOCKS, "network.blocks", list(self.blocks), f"{MAX_BLOCKS:,} blocks in all")
        for name in ("classes", "image", "stem_channels", "stem_kernel", "stem_stride"):
            require(getattr(self, name) >= 1, f"network.{name}", getattr(self, name), "a whole number from 1 up")
        require(self.stem_kernel % 2 == 1, "network.stem_kernel", self.stem_kernel, "an odd number")


@dataclass(frozen=True)
class Training:
    """How a rank trains."""

    batch: int  # samples per rank and step
    # of convolutions and activations; below float32 by autocast, parameters stay float32. Loss scaling, which float16
    # needs, is left out.
    dtype: str = "float32"
    # memory format. Otherwise matrix units, which want channels last, make cuDNN turn tensors around.
    channels_last: bool = False
    # see there; gradients are set to none between steps (torch.optim.Optimizer.zero_grad)
    optimizer: NetworkOptimizer = NetworkOptimizer.FOREACH
    weight_decay: bool = True  # whether parameters are added to gradients
    # of DDP's gradients; they go when so many are ready, the first ones from a mebibyte on
    bucket_bytes: float = 25.0 * MEBIBYTE

    def __post_init__(self) -> None:
        require(self.batch >= 1, "training.batch", self.batch, "a whole number from 1 up")
        require(self.dtype in DTYPES, "training.dtype", self.dtype, ", ".join(DTYPES))
        require(self.bucket_bytes > 0, "training.bucket_bytes", self.bucket_bytes, "more than 0")

    @property
    def is_mixed(self) -> bool:
        """Whether autocast makes copies of parameters."""
        return self.dtype != "float32"


@dataclass(frozen=True)
class NetworkReplicas:
    """Data parallelism: ranks with the whole model."""

    data: int = 1

    def __post_init__(self) -> None:
        require(self.data >= 1, "replicas.data", self.data, "a whole number from 1 up")


@dataclass(frozen=True)
class ConvolutionalPlan:
    """One configuration."""

    name: str
    network: Network
    training: Training
    replicas: NetworkReplicas


# A plan from a mapping, as conf/plan/resnet50.yaml holds it: every key and value checked.

SECTIONS = ("name", "network", "training", "replicas", "source")


def convolutional_from(raw: Mapping[str, Any], where: str) -> ConvolutionalPlan:
    """The plan of a mapping of sections; `source` is where its numbers come from, not used. Errors: see read_plan."""
    keys_in(raw, SECTIONS, where)
    return ConvolutionalPlan(
        str(raw.get("name", where)),
        section(Network, raw.get("network"), f"{where}.network"),
        section(Training, raw.get("training"), f"{where}.training"),
        section(NetworkReplicas, raw.get("replicas", {}), f"{where}.replicas"),
    )
