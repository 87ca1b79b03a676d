"""Peak memory of a step on the CPU."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.record.peak_memory import HostMemory, peak_over_end, tensor_bytes

MEGABYTE = 2**20


def test_the_peak_is_above_the_end() -> None:
    assert peak_over_end([4, 2, -4, 1]) == 3
    assert peak_over_end([]) == 0
    assert peak_over_end([-5, 5]) == 0  # what is held at the end was held before


@given(st.lists(st.integers(-100, 100)))
def test_the_peak_is_never_below_any_moment(moves: list[int]) -> None:
    peak = peak_over_end(moves)
    assert all(sum(moves[:n]) <= peak + sum(moves) for n in range(len(moves) + 1)) and peak >= 0


def test_every_storage_counts_once_gradients_too() -> None:
    before = tensor_bytes()
    weight = torch.zeros(MEGABYTE // 4, requires_grad=True)
    views = [weight.detach(), weight.detach()[5:]]
    assert tensor_bytes() - before == MEGABYTE
    weight.sum().backward()
    assert tensor_bytes() - before == 2 * MEGABYTE and len(views) == 2


def test_gradients_that_are_freed_and_made_again_are_not_counted_twice() -> None:
    """Weight and gradient stay, 1 MB each. Forward holds a product, 1 MB; the gradient of the last step goes first.

    weight 1 | - gradient | + product 1 | + product's gradient: an expanded scalar | + gradient 1 | - product
    """
    weight = torch.ones(MEGABYTE // 4, requires_grad=True)
    memory = HostMemory()

    def step() -> None:
        memory.begin()
        weight.grad = None
        (weight * weight).sum().backward()
        memory.end()

    weight.grad = torch.zeros_like(weight)
    others = tensor_bytes() - 2 * MEGABYTE
    for _ in range(memory.steps):
        step()
    facts = memory.facts()
    assert facts["held_between_steps_bytes"] == others + 2 * MEGABYTE
    peak = facts["peak_bytes"]
    assert isinstance(peak, int) and 2 * MEGABYTE < peak - others < 5 * MEGABYTE


def test_a_profile_that_was_cut_short_is_closed() -> None:
    memory = HostMemory()
    for _ in range(2):  # the first step has no profiler
        assert not torch.autograd._profiler_enabled()
        memory.begin()
        memory.end()
    assert torch.autograd._profiler_enabled()
    memory.close()
    memory.close()
    assert not torch.autograd._profiler_enabled()
