"""`gnnperf.predict(...)`: the keys of predict.py as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnnperf.core import bars_on_terminal, require
from gnnperf.hardware import CLUSTER_GROUP, DEVICE_GROUP, PLAN_GROUP
from gnnperf.predict import Request, check, check_covered, composed
from gnnperf.predict import predict as answer_of
from gnnperf.report import check_output, write_report
from gnnperf.report.notebook.answer import Answer
from gnnperf.report.threshold import read_threshold

CHOICES = (DEVICE_GROUP, CLUSTER_GROUP, PLAN_GROUP)  # of conf/: a name or a path is a choice, a mapping its numbers


def predict(trace: str | Path | None = None, *, words: Sequence[str] = (), **keys: Any) -> Answer:
    """Answer for one step of a trace, or of a plan that never ran.

        predict("trace.json.gz", hardware="h100_sxm", whatif=[{"batch": {"factor": 2}}])
        predict(plan="megatron_18b", hardware="a100_sxm", words=["plan.parallelism.tensor=4"])

    Args:
        trace: trace file, directory of rank files, or archive; None: `plan` is requested.
        words: anything else as on predict.py's command line.
        keys: of predict.py (`python predict.py --cfg job`), e.g. hardware, cluster, plan (names, paths of YAML files,
            or mappings), mode, checkpoint, whatif, step, findings. Nothing is written without `out`, and nothing
            printed.

    Raises:
        InputError: what predict.py refuses with a message and an exit code; NotCovered and StepTooLong are such.
    """
    given = {key: _plain(value) for key, value in keys.items()}
    chosen = [f"{group}={given.pop(group)}" for group in CHOICES if isinstance(given.get(group), str)]
    if trace is not None:
        given["trace"] = str(trace)
    request = composed("predict", Request, *chosen, *words, **given)
    require(not (request.json or request.quiet), "json, quiet", True, "on the command line: nothing is printed here")
    check(request)
    threshold = read_threshold(request.max_step_ms, request.max_regression, request.against)
    out = None if request.out is None else check_output(Path(request.out))
    with bars_on_terminal():
        step = answer_of(request)
        check_covered(step, request.fallback)
        if out is not None:
            write_report(step, out)
    threshold.check(step)
    return Answer(step)


def _plain(value: Any) -> Any:
    """Paths as text; what a configuration can hold."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
