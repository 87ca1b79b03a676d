"""Optimizer steps: bytes per parameter and state, launches per step.

                    reads and writes per parameter            launches
    foreach         each op of the update reads and writes    ops x ceil(tensors / tensors per launch)
    fused           each state once                           ceil(tensors / tensors per launch)
    loop            as foreach                                ops x tensors

State: gradient read; parameter and states read and written; with mixed precision, a float32 copy of the parameter read
and written and the low-precision parameter written (Micikevicius et al. 2018). A multi-tensor launch takes as many
tensors and chunks as its arguments hold (torch's MultiTensorApply.cuh).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from gnnperf.analytic.memory_bound.constants import MemoryConstants
from gnnperf.analytic.memory_bound.streams import US, sustained_bytes_per_s
from gnnperf.hardware import DeviceSpec

STATE_BYTES = 4  # moments and the master copy are float32
TENSORS_PER_LAUNCH = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}  # MultiTensorApply.cuh: depth_to_max_tensors
CHUNK_ELEMENTS, CHUNKS_PER_LAUNCH = 65536, 320  # MultiTensorApply.cuh: kChunkSize, depth_to_max_blocks


class Implementation(StrEnum):
    """How a step is launched."""

    LOOP = "loop"
    FOREACH = "foreach"
    FUSED = "fused"


@dataclass(frozen=True)
class UpdateRule:
    """One optimizer.

    Attributes:
        states: float32 tensors per parameter that are read and written (momentum 1, Adam 2).
        ops: elementwise ops of an update that is not fused.
        tensors_touched: tensors that those ops read and write, all together.
    """

    states: int
    ops: int
    tensors_touched: int


SGD = UpdateRule(states=0, ops=1, tensors_touched=3)  # p += -lr g
MOMENTUM = UpdateRule(states=1, ops=3, tensors_touched=8)  # m *= mu (2); m += g (3); p += -lr m (3)
# m.lerp_(g) (3); v *= b (2); v.addcmul_(g, g) (3: g once); sqrt (2); /= bias (2); += eps (2); p.addcdiv_(m, d) (4)
ADAM = UpdateRule(states=2, ops=7, tensors_touched=18)


def bytes_per_parameter(
    rule: UpdateRule, implementation: Implementation, parameter_bytes: int, gradient_bytes: int, master: bool = False
) -> float:
    """Bytes read and written for each parameter; see the module.

    Args:
        rule: the optimizer.
        implementation: fused or not.
        parameter_bytes: of the parameter that the model uses.
        gradient_bytes: of its gradient.
        master: a float32 copy is what is updated; the model's parameter is written from it.
    """
    if implementation is Implementation.FUSED:
        updated = 2.0 * STATE_BYTES + parameter_bytes if master else 2.0 * parameter_bytes
        return gradient_bytes + updated + 2.0 * STATE_BYTES * rule.states
    unfused = float(rule.tensors_touched * (STATE_BYTES if master else parameter_bytes))
    return unfused + (gradient_bytes + STATE_BYTES + STATE_BYTES + parameter_bytes if master else 0.0)


def launches(
    rule: UpdateRule, implementation: Implementation, parameters: np.ndarray, tensors: np.ndarray
) -> np.ndarray:
    """Kernels [n] of one step."""
    if implementation is Implementation.LOOP:
        return rule.ops * tensors
    depth = min(2 + rule.states, max(TENSORS_PER_LAUNCH)) if implementation is Implementation.FUSED else 2
    chunks = np.ceil(parameters / CHUNK_ELEMENTS)  # [n]
    per_op = np.maximum(np.ceil(tensors / TENSORS_PER_LAUNCH[depth]), np.ceil(chunks / CHUNKS_PER_LAUNCH))
    return per_op if implementation is Implementation.FUSED else rule.ops * per_op


def step_us(
    parameters: np.ndarray,
    tensors: np.ndarray,
    bytes_each: float,
    num_launches: np.ndarray,
    device: DeviceSpec,
    constants: MemoryConstants,
    launch_gap_us: float = 0.0,
) -> np.ndarray:
    """Time [n] us of one step from its first kernel's start to its last one's end.

    Args:
        parameters: [n] that are stepped.
        tensors: [n] that hold them.
        bytes_each: see `bytes_per_parameter`.
        num_launches: [n] see `launches`.
        device: floor and bandwidth.
        constants: sustained share.
        launch_gap_us: the host's time per tensor, where it does not run ahead.
    """
    memory = parameters * bytes_each / sustained_bytes_per_s(device, constants) * US  # [n]
    return np.maximum(memory + num_launches * device.launch_floor_us, tensors * launch_gap_us)
