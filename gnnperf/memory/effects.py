"""What calls leave behind, as torch computes it (`torch_effects`): computed once, and kept next to the graphs.

torch takes seconds to import, and a trace is predicted more than once.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import msgspec

from gnnperf.core import InputError, code_of, write_bytes
from gnnperf.memory.storages import Slot

_MAX_CACHED = 50_000  # effects: some ten megabytes


class CannotTell(Exception):
    """The op cannot be run from what was recorded of it. Never leaves the package."""


@dataclass(frozen=True)
class Result:
    """One tensor that a call returns."""

    # shape, dtype: of the tensor
    shape: tuple[int, ...]
    dtype: str
    num_bytes: int  # of its storage
    of_input: int | None = None  # position among the call's tensors whose memory it shares; None: memory of its own
    of_result: int | None = None  # position of an earlier result that it shares memory with


@dataclass(frozen=True)
class Effect:
    """What a call leaves behind."""

    results: tuple[Result, ...]  # in order
    # saved_inputs, saved_results: positions that the backward needs again
    saved_inputs: frozenset[int] = frozenset()
    saved_results: frozenset[int] = frozenset()
    saved_bytes: int = 0  # of what it needs and neither takes nor returns


@dataclass
class _Cached:
    """What torch computed."""

    # op and arguments -> effect; None where the op cannot be run
    effects: dict[str, Effect | None] = field(default_factory=dict)
    composite: dict[str, bool | None] = field(default_factory=dict)  # op -> whether it is; None: torch has none


_cached = _Cached()


def is_composite(name: str) -> bool | None:
    """Whether an op is nothing but the ops that it calls, for autograd too; None: torch has no such op in aten."""
    if name not in _cached.composite:
        from gnnperf.memory import torch_effects

        _cached.composite[name] = torch_effects.is_composite(name)
    return _cached.composite[name]


@lru_cache(maxsize=20_000)
def effect_of(name: str, slots: tuple[Slot, ...]) -> Effect:
    """What the call leaves behind.

    Raises:
        CannotTell: the op cannot be run from what was recorded of it.
    """
    key = f"{name} {slots}"
    if key not in _cached.effects:
        from gnnperf.memory import torch_effects

        try:
            _cached.effects[key] = torch_effects.effect_of(name, slots)
        except CannotTell:
            _cached.effects[key] = None
    if (effect := _cached.effects[key]) is None:
        raise CannotTell(name)
    return effect


def without_compiler() -> None:
    """In a copy of a process, which compiles nothing: torch does not load its compiler, which takes over a second.

    Torch's decompositions of ops load it only to mark themselves as not to be compiled.
    """
    stand_in = ModuleType("torch._dynamo")
    stand_in.disable = lambda function, *_, **__: function  # type: ignore[attr-defined]
    sys.modules.setdefault(stand_in.__name__, stand_in)


@contextmanager
def effects_cached_in(folder: Path | None) -> Iterator[None]:
    """Read effects of earlier predictions from a folder, and add the new ones to it; None: nothing is kept."""
    if folder is None:
        yield
        return
    path = folder / f"effects-{code_of('memory/effects.py', 'memory/torch_effects.py')}-{version('torch')}.json"
    earlier = _Cached()
    with suppress(OSError, msgspec.DecodeError):  # none yet, or damaged: they are computed again
        earlier = msgspec.json.decode(path.read_bytes(), type=_Cached)
    for name in ("effects", "composite"):
        getattr(_cached, name).update(getattr(earlier, name))
    yield
    if len(earlier.effects) < len(_cached.effects) <= _MAX_CACHED:
        with suppress(OSError, InputError):  # the graph, which goes to the same folder, warns
            folder.mkdir(parents=True, exist_ok=True)
            write_bytes(path, msgspec.json.encode(_cached))
