from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from research.listed.call import Layout, contiguous, permuted, viewed

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def test_heads_of_one_sequence_fold_without_a_copy_and_of_two_do_not() -> None:
    one = permuted(contiguous((1, 8, 2, 4)), (1, 2, 8, 4))
    two = permuted(contiguous((3, 8, 2, 4)), (3, 2, 8, 4))
    assert one is not None and two is not None and not two.is_contiguous
    assert viewed(one, (2, 8, 4)) == Layout((2, 8, 4), (4, 8, 1))
    assert viewed(two, (6, 8, 4)) is None


def test_of_several_orders_the_one_that_moves_fewest_axes_is_taken() -> None:
    result = permuted(contiguous((2, 5, 2, 3)), (2, 2, 5, 3))
    assert result == Layout((2, 2, 5, 3), (30, 3, 6, 1))


@given(SHAPES, SHAPES)
def test_a_contiguous_tensor_can_be_viewed_as_whatever_has_its_elements(
    old: tuple[int, ...], new: tuple[int, ...]
) -> None:
    result = viewed(contiguous(old), new)
    assert (result is not None) == (prod(old) == prod(new))
    assert result is None or result.is_contiguous


@given(SHAPES, st.randoms(use_true_random=False), SHAPES)
def test_a_view_has_the_elements_in_the_order_that_numpy_has_them(shape: tuple[int, ...], random, new) -> None:  # type: ignore[no-untyped-def]
    axes = list(range(len(shape)))
    random.shuffle(axes)
    flat = np.arange(prod(shape))
    base = contiguous(shape)
    turned = Layout(tuple(shape[a] for a in axes), tuple(base.strides[a] for a in axes))
    result = viewed(turned, new)
    if result is None:
        return
    strided = np.lib.stride_tricks.as_strided(flat, result.shape, [s * flat.itemsize for s in result.strides])
    expected = flat.reshape(shape).transpose(axes).reshape(new)
    assert (strided == expected).all()
