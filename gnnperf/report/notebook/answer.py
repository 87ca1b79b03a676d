"""A prediction as a notebook shows it: a card, a table of nodes, figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from gnnperf.predict import StepPrediction, TraceMeasurements
from gnnperf.report import write_report
from gnnperf.report.summary import nodes_table
from gnnperf.report.text import headline
from gnnperf.whatif import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plotly.graph_objects import Figure
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from gnnperf.core import bars_on_terminal, require
from gnnperf.hardware import CLUSTER_GROUP, DEVICE_GROUP, PLAN_GROUP
from gnnperf.predict import Request, check, check_covered, composed
from gnnperf.predict import predict as answer_of
from gnnperf.report import check_output
from gnnperf.report.compare.text import read_threshold
from gnnperf.report.devices import alternative_rows
from gnnperf.report.summary import top_ops
from gnnperf.report.text import (
    MEANING,
    MOST_WARNINGS,
    comparison,
    coverage,
    finding_head,
    steps_line,
    target,
    time_rows,
    whatif_lines,
)
from gnnperf.report.throughput import throughput_lines

# The answer as a short card of HTML. Names come from strangers' traces: everything is escaped.

NUM_OPS = 5
NUM_UNCOVERED = 5
HEADS = ("op", "type", "on critical path", "predicted, all ranks", "measured, all ranks")
WARN = "border-left:4px solid #d08c3f;padding:.1rem .6rem;margin:.2rem 0"


def card(answer: StepPrediction) -> str:
    """Warnings, step time and interval, what is covered, findings, the ops with most time on the critical path."""
    dim = 'style="opacity:.7"'
    lines = [
        *(f'<div style="{WARN}">{escape(warning)}</div>' for warning in answer.warnings[:MOST_WARNINGS]),
        f"<div {dim}>{escape(target(answer))}</div>",
        f'<div style="font-size:1.3em;font-weight:600">{escape(headline(answer))}</div>',
        f"<div {dim}>{escape(MEANING[answer.step_time_kind])}</div>",
        f"<div>{escape(comparison(answer))}</div>",
        *(f"<div {dim}>{escape(line)}</div>" for line in steps_line(answer)),
        *(f"<div>{escape(', '.join(filter(None, row)))}</div>" for row in alternative_rows(answer)),
        *(f"<div><b>{escape(line)}</b></div>" for line in whatif_lines(answer)),
        *(f"<div>{escape(line)}</div>" for line in throughput_lines(answer)),
        f"<div>{escape(coverage(answer))}</div>",
        *_uncovered(answer),
        *(f"<div><b>finding</b> {escape(finding_head(result))}</div>" for result in answer.findings or ()),
        _ops(answer),
    ]
    return "<div>" + "\n".join(lines) + "</div>"


def _uncovered(answer: StepPrediction) -> Iterable[str]:
    ops = list(answer.uncovered_ops.items())
    if ops:
        more = f" and {len(ops) - NUM_UNCOVERED} more ops" if len(ops) > NUM_UNCOVERED else ""
        names = ", ".join(f"{name} ({count})" for name, count in ops[:NUM_UNCOVERED])
        yield f"<div><b>not covered</b> {escape(names + more)}</div>"


def _ops(answer: StepPrediction) -> str:
    ops = top_ops(answer, NUM_OPS)
    times = time_rows(ops, ("critical_us", "predicted_us", "measured_us"))
    rows = [(str(op), str(kind), *us) for op, kind, us in zip(ops["op_name"], ops["node_type"], times, strict=True)]
    head = "".join(f"<th>{escape(text)}</th>" for text in HEADS)
    body = "".join("<tr>" + "".join(f"<td>{escape(td)}</td>" for td in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


@dataclass(frozen=True, repr=False)
class Answer:
    """The answer about one step.

    Attributes:
        step: everything that is known of it.
    """

    step: StepPrediction

    @property
    def step_time_us(self) -> float:
        """Of `step.step_time_kind`; with uncovered work a lower bound (`step.is_lower_bound`)."""
        return self.step.step_time_us

    @property
    def step_time_interval_us(self) -> tuple[float, float] | None:
        """Lowest and highest step time at `step.interval_level`; None: a warning says why there is none."""
        return self.step.step_time_interval_us

    @property
    def warnings(self) -> tuple[str, ...]:
        """Read them first."""
        return self.step.warnings

    @property
    def notes(self) -> tuple[str, ...]:
        """Facts about the prediction that need no action."""
        return self.step.notes

    @property
    def measurements(self) -> TraceMeasurements | None:
        """What the trace measured over all steps and ranks: steps, outliers, distributions per class; None: a plan."""
        return self.step.measurements

    @property
    def uncovered_ops(self) -> dict[str, int]:
        """Op -> number of nodes that nothing answers for."""
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

    def plot_timeline(self, ranks: Sequence[int] | None = None) -> Figure:
        """Predicted next to measured slices per rank, stream and thread.

        Raises:
            InputError: no such rank, or plotly is not installed.
        """
        from gnnperf.report.notebook.figures import timeline

        return timeline(self.step, ranks)

    def plot_breakdown(self, by: str = "node type") -> Figure:
        """Time on the critical path and latencies over all ranks, by node type, phase or op.

        Raises:
            InputError: another way to add up, or plotly is not installed.
        """
        from gnnperf.report.notebook.figures import breakdown

        return breakdown(self.step, by)

    def plot_critical_path(self) -> Figure:
        """What holds the step back, moment by moment.

        Raises:
            InputError: plotly is not installed.
        """
        from gnnperf.report.notebook.figures import critical_path

        return critical_path(self.step)

    def __repr__(self) -> str:
        return f"<{headline(self.step)}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return card(self.step)


CHOICES = (DEVICE_GROUP, CLUSTER_GROUP, PLAN_GROUP)  # of conf/: a name or a path is a choice, a mapping its numbers


def predict(trace: str | Path | None = None, *, words: Sequence[str] = (), **keys: Any) -> Answer:
    """Answer for one step of a trace, or of a plan that never ran.

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
