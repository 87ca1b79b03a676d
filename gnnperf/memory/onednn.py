"""What oneDNN holds while a convolution runs on a CPU: copies of tensors in its own layout, which no trace shows.

Channels come in blocks of 16 (nChw16c, oneDNN's layout where a vector register holds 16 float32): 8 channels take as
much as 16. Inputs of few channels are read as they are. The rules are read off the allocations of
convolutions run alone, in this order:

    forward    copy of input, result in blocks | result in blocks, result
    backward   copy of gradient, input's gradient in oneDNN's layout | that, the input's gradient, what is asked for |
               the input's gradient, copy of gradient, copy of input
"""

from __future__ import annotations

from gnnperf.memory.slots import TensorSlot
from gnnperf.memory.step_calls import Call

_BLOCK = 16  # channels
_FEW = 4  # channels that are read as they are
_FORWARD, _BACKWARD = "aten::convolution", "aten::convolution_backward"
_USES_ONEDNN = "aten::mkldnn_convolution"


def workspace_bytes(call: Call, asked_bytes: int) -> int:
    """Bytes on top of the results; 0 for other ops, and for convolutions that something else computes.

    Args:
        call: of a convolution or of its backward.
        asked_bytes: what the trace shows that is asked for inside, beyond the results.
    """
    slots = [slot for slot in call.slots[:3] if isinstance(slot, TensorSlot) and len(slot.shape) == 4]
    if call.name == _FORWARD and len(slots) == 2 and any(name == _USES_ONEDNN for name, _ in call.inside):
        return blocked_bytes(slots[0])
    if call.name == _BACKWARD and len(slots) == 3:
        gradient, data, _ = slots
        return max(blocked_bytes(gradient) + blocked_bytes(data), data.num_bytes + asked_bytes)
    return 0


def blocked_bytes(tensor: TensorSlot) -> int:
    """Bytes of a tensor [N, C, H, W] in blocks of channels; 0 where it is read as it is."""
    samples, channels, *rest = tensor.shape
    if channels < _FEW:
        return 0
    whole = -(-channels // _BLOCK) * _BLOCK
    return TensorSlot((samples, whole, *rest), tensor.dtype).num_bytes
