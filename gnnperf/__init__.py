"""gnnperf: a learned performance model for multi-GPU training.

    step = gnnperf.predict("trace.json.gz", hardware="h100_sxm")      as predict.py does (gnnperf.report.notebook)

`import gnnperf` loads nothing else; the package `gnnperf.predict`, which can be called, is loaded when it is first
named.
"""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The one name that is loaded on demand."""
    if name != "predict":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return importlib.import_module("gnnperf.predict")
