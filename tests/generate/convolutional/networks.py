"""Networks that the tests share."""

from dataclasses import replace
from typing import Any

import yaml

from gnnperf.generate.convolutional.plan import (
    Block,
    ConvolutionalPlan,
    Network,
    NetworkOptimizer,
    NetworkReplicas,
    Training,
    convolutional_from,
)
from gnnperf.hardware.yaml_spec import conf_dir


def shipped(name: str, replicas: int = 1, **training: Any) -> ConvolutionalPlan:
    """A plan of conf/plan."""
    plan = convolutional_from(yaml.safe_load((conf_dir("plan") / f"{name}.yaml").read_text()), name)
    return replace(plan, training=replace(plan.training, **training), replicas=NetworkReplicas(replicas))


def tiny(replicas: int = 1, block: Block = Block.BASIC, **training: Any) -> ConvolutionalPlan:
    """One block of 4 channels on images of 8 x 8, batch 2, 3 classes: no stem's pool, no shortcut's convolution."""
    network = Network(block, (1,), (4,), (1,), classes=3, image=8, stem_channels=4, stem_kernel=3, stem_stride=1,
                      stem_pool=False)  # fmt: skip
    return ConvolutionalPlan("tiny", network, Training(2, **training), NetworkReplicas(replicas))


def recorded_layout(block: Block, replicas: int) -> ConvolutionalPlan:
    """As research.recording.workloads.cnn.Cnn(blocks=2, channels=16, image=32, batch=8) is built."""
    network = Network(block, (2, 2, 2), (16, 32, 64), (1, 2, 2), classes=10, image=32, stem_channels=16, stem_kernel=3,
                      stem_stride=1, stem_pool=False, shortcut_norm=False, inplace=False)  # fmt: skip
    training = Training(8, optimizer=NetworkOptimizer.FUSED, weight_decay=False, bucket_bytes=float(1 << 20))
    return ConvolutionalPlan("recorded", network, training, NetworkReplicas(replicas))
