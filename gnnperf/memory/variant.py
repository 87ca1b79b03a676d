"""What ops of a step would be called with, had the program been another one: the step goes by again, without data.

A variant says what tensors are that nobody in the step makes, and how numbers among the arguments go with tensors. All
other shapes follow: torch is asked what an op returns for the tensors that it is given then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gnnperf.memory.slots import Slot, TensorSlot, with_tensors
from gnnperf.memory.step_calls import Call


class Variant(Protocol):
    """A known change of the program."""

    def source(self, recorded: TensorSlot) -> TensorSlot:
        """What a tensor is that was there before the step, and is no parameter."""
        ...

    def parameter(self, recorded: TensorSlot) -> TensorSlot:
        """What a parameter is, its gradient and its state."""
        ...

    def casts(self, call: Call, actual: Sequence[TensorSlot]) -> tuple[str, ...]:
        """The dtype of the copy that the call is given of each tensor; "" the tensor itself."""
        ...

    def arguments(self, call: Call, recorded: Sequence[TensorSlot], actual: Sequence[TensorSlot]) -> tuple[Slot, ...]:
        """The call's arguments, given its tensors as recorded and as they are."""
        ...

    def guess(self, call: Call, recorded: Sequence[TensorSlot]) -> Sequence[TensorSlot]:
        """The call's tensors by their recorded shapes alone, where those that were followed do not go together."""
        ...


class AsRecorded:
    """No change."""

    def source(self, recorded: TensorSlot) -> TensorSlot:
        """As it was."""
        return recorded

    def parameter(self, recorded: TensorSlot) -> TensorSlot:
        """As it was."""
        return recorded

    def casts(self, call: Call, actual: Sequence[TensorSlot]) -> tuple[str, ...]:
        """None."""
        return ("",) * len(actual)

    def arguments(self, call: Call, recorded: Sequence[TensorSlot], actual: Sequence[TensorSlot]) -> tuple[Slot, ...]:
        """As they were."""
        return with_tensors(call.slots, list(actual))

    def guess(self, call: Call, recorded: Sequence[TensorSlot]) -> Sequence[TensorSlot]:
        """As they were."""
        return recorded
