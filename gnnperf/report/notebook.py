"""Predictions from Python and in notebooks: `gnnperf.predict(...)`, with a card and a table of nodes."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from gnnperf.core import bars_on_terminal, require
from gnnperf.hardware import CLUSTER_GROUP, DEVICE_GROUP, PLAN_GROUP
from gnnperf.predict import Request, StepPrediction, WhatIfPrediction, check, check_covered, composed
from gnnperf.predict import predict as estimate_of
from gnnperf.report.compare.text import read_threshold
from gnnperf.report.console import summary
from gnnperf.report.page.markup import asset
from gnnperf.report.page.ops import OF_TYPE, OTHER
from gnnperf.report.summary import nodes_table
from gnnperf.report.text import headline
from gnnperf.report.write import check_output, write_report, write_tables
from gnnperf.whatif import Finding

CARD = '<pre style="font-family:monospace;line-height:1.3;white-space:pre-wrap">{code}</pre>'
PART = (
    '<span style="display:inline-block;height:1em;width:{width:.2f}%;background:{color}" '
    'title="{name} {width:.1f} % of the critical path"></span>'
)


@dataclass(frozen=True, repr=False)
class Estimate:
    """The prediction about one step."""

    step: StepPrediction  # everything that is known of it

    @property
    def step_time_us(self) -> float:
        """Of `step.step_time_kind`; with uncovered work a lower bound (`step.is_lower_bound`)."""
        return self.step.step_time_us

    @property
    def step_time_interval_us(self) -> tuple[float, float] | None:
        """Lowest and highest step time at `step.interval_level`; None: a warning has the reason."""
        return self.step.step_time_interval_us

    @property
    def whatif(self) -> WhatIfPrediction | None:
        """The step with edits; None: there are none."""
        return self.step.whatif

    @property
    def warnings(self) -> tuple[str, ...]:
        """Read them first."""
        return self.step.warnings

    @property
    def uncovered_ops(self) -> dict[str, int]:
        """Op -> number of uncovered nodes."""
        return self.step.uncovered_ops

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What holds the step up, the largest gain first; () also where it was not looked for."""
        return self.step.findings or ()

    def to_dataframe(self) -> pd.DataFrame:
        """[num_nodes] the columns of nodes.parquet (schema.PREDICTION_COLUMNS)."""
        return nodes_table(self.step)

    def write(self, out: str | Path) -> tuple[Path, ...]:
        """Write prediction.json, nodes.parquet, timeline.json.gz and report.html; their paths.

        Raises:
            InputError: `out` may not or cannot be written.
        """
        return write_report(self.step, Path(out))

    def __repr__(self) -> str:
        return f"<{headline(self.step)}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the console's summary. Names come from strangers' traces; rich escapes them."""
        drawn = Console(record=True, file=io.StringIO(), width=120)
        drawn.print(summary(self.step), soft_wrap=True)
        colors = dict(re.findall(r"--(\w+): light-dark\((#\w+),", asset("report.css")))
        parts = "".join(
            PART.format(width=100.0 * share, color=colors[OF_TYPE.get(name, OTHER)], name=name)
            for name, share in self.step.critical_path_share.items()
        )
        bar = f'<div style="height:1em;font-size:13px">{parts}</div>'  # the critical path, in the colors of report.html
        return drawn.export_html(inline_styles=True, code_format=CARD) + bar


CHOICES = (DEVICE_GROUP, CLUSTER_GROUP, PLAN_GROUP)  # of conf/: a name or a path is a choice, a mapping its numbers


def predict(trace: str | Path | None = None, *, words: Sequence[str] = (), **keys: Any) -> Estimate:
    """Predict one step of a trace, or of a plan that never ran.

        predict("trace.json.gz", hardware="h100_sxm", whatif=[{"batch": {"factor": 2}}])
        predict("trace.json.gz", hardware={"num_sms": 66}, words=["hardware=h100_sxm"])
        predict(plan="megatron_18b", hardware="a100_sxm", words=["plan.parallelism.tensor=4"])

    A mapping changes keys of the choice in `words`; without one it has to be complete.

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
    if isinstance(given.get(DEVICE_GROUP), list):
        given[DEVICE_GROUP] = f"[{','.join(map(str, given[DEVICE_GROUP]))}]"
    chosen = [f"{group}={given.pop(group)}" for group in CHOICES if isinstance(given.get(group), str)]
    if trace is not None:
        given["trace"] = str(trace)
    request = composed("predict", Request, *chosen, *words, **given)
    require(not (request.json or request.quiet), "json, quiet", True, "on the command line: nothing is printed here")
    check(request)
    threshold = read_threshold(request.max_step_ms, request.max_regression, request.against)
    out = None if request.out is None else check_output(Path(request.out))
    with bars_on_terminal():
        step = estimate_of(request)
        check_covered(step, request.fallback)
        if out is not None:
            write_report(step, out)
        if request.tables:
            write_tables(step, Path(request.tables))
    threshold.check(step)
    return Estimate(step)


def _plain(value: Any) -> Any:
    """Paths as text; what a configuration can hold."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
