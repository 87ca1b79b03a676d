"""What exists before the first step is set aside."""

import gc
from collections.abc import Iterator

import pytest

from gnnperf.record.step_clock import all_objects, garbage_set_aside


@pytest.fixture(autouse=True)
def _nothing_frozen() -> Iterator[None]:
    """Without the objects that tests/conftest.py freezes."""
    gc.unfreeze()
    yield
    gc.freeze()


class Thing:
    """Something to find again."""


def test_objects_are_set_aside_and_come_back() -> None:
    thing = Thing()
    with garbage_set_aside():
        assert gc.get_freeze_count() > 0
        assert not any(known is thing for known in gc.get_objects())
        assert any(known is thing for known in all_objects())
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_a_program_that_froze_its_objects_keeps_them_frozen() -> None:
    gc.freeze()
    try:
        with garbage_set_aside():
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
