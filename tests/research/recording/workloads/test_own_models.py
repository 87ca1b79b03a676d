"""Models that no library has: one batch forward and backward."""

from collections.abc import Callable
from typing import Any

import pytest

from research.recording.workloads.library_model import MODELS, LibraryModel
from research.recording.workloads.small_model import SMALL_MODELS, SmallModel


@pytest.mark.parametrize(("models", "at"), [
    (MODELS, LibraryModel("lstm", batch=2, size=4)), (MODELS, LibraryModel("diffusion", batch=1, size=16)),
    (SMALL_MODELS, SmallModel("seq2seq", batch=2, size=4)),
])  # fmt: skip
def test_a_batch_has_a_loss_and_gradients(models: dict[str, Callable[[Any], Any]], at: Any) -> None:
    for program in (models[at.model](at), models[at.model](at)):
        program.loss(program.model, program.inputs()).backward()
        assert any(weight.grad is not None and weight.grad.any() for weight in program.model.parameters())
