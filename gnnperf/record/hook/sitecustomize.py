"""Python imports this module by itself in every process of `gnnperf record -- COMMAND`, whatever starts it.

It stands first in PYTHONPATH, so it runs the `sitecustomize` that it hides. Nothing else happens before an optimizer
steps: only then are torch and gnnperf known to be wanted.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(HERE))


class _Optimizers:
    """Finds torch's optimizers, and lets their first step begin the recording."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch.optim.optimizer":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_wait(module: ModuleType) -> None:
                run(module)
                module.register_optimizer_step_post_hook(_stepped)

            spec.loader.exec_module = run_and_wait  # type: ignore[method-assign]
        return spec


def _stepped(optimizer: Any, *arguments: object) -> None:
    if "gnnperf" not in sys.modules:  # that of the command which records; the program's environment may lack it
        spec = spec_from_file_location("gnnperf", os.path.join(PACKAGE, "__init__.py"))
        if spec is not None and spec.loader is not None:
            sys.modules["gnnperf"] = module_from_spec(spec)
            spec.loader.exec_module(sys.modules["gnnperf"])
    from gnnperf.record.script import stepped

    stepped(optimizer)


sys.meta_path.insert(0, _Optimizers())  # type: ignore[arg-type]
_hidden = PathFinder.find_spec("sitecustomize", [path for path in sys.path if os.path.abspath(path) != HERE])
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(module_from_spec(_hidden))
