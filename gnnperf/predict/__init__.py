"""From a trace to the predicted step: predictors, their fallback order, and the step time that they make.

The package can be called: `gnnperf.predict("trace.json.gz", hardware="h100_sxm")` is `gnnperf.report.notebook.predict`.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


class _CallablePackage(ModuleType):
    """A package with the name that users expect of a function."""

    def __call__(self, *trace: Any, **keys: Any) -> Any:
        """See `gnnperf.report.notebook.predict`, which is imported at the first call."""
        return importlib.import_module("gnnperf.report.notebook").predict(*trace, **keys)


sys.modules[__name__].__class__ = _CallablePackage
