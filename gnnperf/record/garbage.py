"""Python's garbage collector while steps are timed: a full collection walks every object that torch made, 200 ms once.

It comes after thousands of small objects, so in one of many runs it falls into one of four traced steps. What exists
before the first step is collected and then left out of later collections; those still happen, and stay short.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def set_aside() -> Iterator[None]:
    """Collect, and leave what is there out of collections until the end; a program that has done so is left alone."""
    if gc.get_freeze_count() > 0:
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def all_objects() -> list[object]:
    """Every object that the collector knows, those set aside included."""
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    try:
        return gc.get_objects()
    finally:
        if frozen:
            gc.freeze()
