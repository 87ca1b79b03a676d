"""Record training steps: a trace per rank and a card, in a run directory.

    with record("runs/mine", workload="gpt", parameters={"layers": 12}) as step:
        while not step.done:
            train_one_batch()
            step()

Needs torch and the standard library only, so it drops into anybody's training image.
"""

import importlib

_MODULES = {"PROFILER_WARMUP_STEPS": "step_recorder", "record": "recorder", "step_profiler": "step_recorder"}

__all__ = ["PROFILER_WARMUP_STEPS", "record", "step_profiler"]


def __getattr__(name: str) -> object:
    """Load a module, and torch with it, when one of its names is first used."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
