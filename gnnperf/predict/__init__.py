"""From a trace to one step's answer: predictors, the ladder among them, and the step time they make.

The room can be called: `gnnperf.predict("trace.json.gz", hardware="h100_sxm")` is `gnnperf.report.notebook.predict`.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

from gnnperf.predict.config import Mode, PredictConfig
from gnnperf.predict.step_prediction import StepPrediction

__all__ = ["Mode", "PredictConfig", "StepPrediction"]


class _CallableRoom(ModuleType):
    """A module by the name that users expect of a function."""

    def __call__(self, *trace: Any, **keys: Any) -> Any:
        """See `gnnperf.report.notebook.predict`, which knows the configuration and is loaded when it is called."""
        return importlib.import_module("gnnperf.report.notebook").predict(*trace, **keys)


sys.modules[__name__].__class__ = _CallableRoom
