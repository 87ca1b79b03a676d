"""The residual network."""

from __future__ import annotations

from torch import nn

from research.recording.workloads.cnn import Bottleneck, Cnn, Layout, ResNet


def test_bottlenecks_widen_fourfold() -> None:
    model = ResNet(Cnn(blocks=2, channels=8, layout=Layout.BOTTLENECK), 1)
    blocks = [block for block in model.blocks if isinstance(block, Bottleneck)]
    kernels = [[part.kernel_size[0] for part in block.convolutions if isinstance(part, nn.Conv2d)] for block in blocks]
    assert kernels == [[1, 3, 1]] * 6
    assert [block.channels for block in blocks] == [32, 32, 64, 64, 128, 128]
    assert model.output.in_features == 128
