"""Steps of a program that knows nothing of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from gnnperf.core.errors import InputError
from gnnperf.record.script import Recording, StepMarker


class Steps:
    """Stands in for a StepRecorder: done after three."""

    def __init__(self, log: list[str]) -> None:
        self.log, self.count = log, 0

    @property
    def done(self) -> bool:
        return self.count == 3

    def __call__(self) -> None:
        self.count += 1
        self.log.append("step")


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture(autouse=True)
def marker(log: list[str]) -> Iterator[StepMarker]:
    def begin(seen: Mapping[str, Any]) -> Recording:
        @contextmanager
        def recording() -> Iterator[Steps]:
            log.append(f"begin {seen['precision']}")
            steps = Steps(log)
            try:
                yield steps
            except BaseException as error:
                log.append(type(error).__name__)
                raise
            if not steps.done:
                raise InputError("steps are missing")
            log.append("end")

        return recording()  # type: ignore[return-value]

    made = StepMarker(begin)
    hook = register_optimizer_step_post_hook(lambda optimizer, *_: made.stepped(optimizer))
    yield made
    hook.remove()


def optimizer(dtype: torch.dtype = torch.float32) -> torch.optim.Optimizer:
    weight = torch.ones(1, dtype=dtype, requires_grad=True)
    weight.grad = torch.ones_like(weight)
    return torch.optim.SGD([weight])


def test_a_step_is_from_one_step_of_the_first_optimizer_to_its_next(log: list[str]) -> None:
    first, second = optimizer(), optimizer()
    for _ in range(6):
        first.step()
        second.step()
    assert log == ["begin float32", "step", "step", "step", "end"]


def test_the_precision_is_that_of_the_parameters(log: list[str]) -> None:
    optimizer(torch.bfloat16).step()
    assert log == ["begin bfloat16"]


def test_nothing_begins_before_all_ranks_have_met(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    optimizer().step()
    assert log == []


def test_an_error_of_the_program_breaks_the_recording(log: list[str], marker: StepMarker) -> None:
    optimizer().step()
    marker.end(ZeroDivisionError())
    assert log == ["begin float32", "ZeroDivisionError"]
    optimizer().step()
    assert len(log) == 2
