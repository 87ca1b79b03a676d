"""A comparison on the terminal and as JSON."""

import itertools
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gnnperf.core import InputError, StepTimeKind, require
from gnnperf.predict import StepPrediction
from gnnperf.report.compare.changes import Change, Comparison, leading
from gnnperf.report.compare.compare_cli import EXCEEDED
from gnnperf.report.compare.side import Side, read_step
from gnnperf.report.text import time_text
from gnnperf.report.throughput import number_text
from gnnperf.trace import run_name

# Thresholds for CI: how long step B may be.


class StepTooLong(InputError):
    """The prediction is above a limit: nothing is wrong with the input, so that scripts can tell it from a mistake."""

    exit_code = EXCEEDED


@dataclass(frozen=True)
class Limits:
    """What step B of a comparison, or a prediction, may not exceed."""

    max_step_ms: float | None = None  # the longest step; None: any
    max_regression: float | None = None  # how much longer than step A it may be, in percent; None: any
    against: str = ""  # of a prediction, in place of step A ("" nothing): its name, step time and kind
    before_us: float | None = None
    before_kind: StepTimeKind | None = None

    def __post_init__(self) -> None:
        """Refuse what is no limit: NaN would let everything pass."""
        for name, value in (("--max-step-ms", self.max_step_ms), ("--max-regression", self.max_regression)):
            require(value is None or (math.isfinite(value) and value >= 0), name, value, "a number, 0 or more")

    def exceeded(self, result: Comparison) -> tuple[str, ...]:
        """A sentence for each limit that step B is beyond."""
        return self._sentences("step B", result.b.step_time_us, "step A", result.a.step_time_us)

    def check(self, prediction: StepPrediction) -> None:
        """Raise StepTooLong, naming the limits; refuses steps of different kinds, which are different quantities."""
        if self.before_kind is not None and self.before_kind is not prediction.step_time_kind:
            raise InputError(f"its step is a {self.before_kind}, the predicted one a {prediction.step_time_kind}",
                             where=self.against, allowed="two steps of one kind: periods, makespans or windows",
                             remedy="choose another step (step=N)")  # fmt: skip
        texts = self._sentences("the step", prediction.step_time_us, f"that of {self.against}", self.before_us)
        if texts:
            raise StepTooLong("; ".join(texts))

    def _sentences(self, step: str, step_us: float, before: str, before_us: float | None) -> tuple[str, ...]:
        """A sentence for each limit that a step is beyond."""
        texts = []
        if self.max_step_ms is not None and step_us > 1000.0 * self.max_step_ms:
            texts.append(f"{step} takes {time_text(step_us)}, more than {self.max_step_ms:g} ms (--max-step-ms)")
        if self.max_regression is None or before_us is None:
            return tuple(texts)
        longer_us = step_us - before_us
        if longer_us > self.max_regression / 100.0 * before_us:
            share = f"{100.0 * longer_us / before_us:.1f} %" if before_us > 0 else time_text(longer_us)
            texts.append(
                f"{step} is {share} longer than {before}, more than {self.max_regression:g} % (--max-regression)"
            )
        return tuple(texts)


def read_threshold(max_step_ms: float | None, max_regression: float | None, against: str | None) -> Limits:
    """The limits requested.

    Raises:
        InputError: a regression from nothing or nothing from it, a value that is no limit, or no prediction is there.
    """
    require((max_regression is None) == (against is None), "max_regression", max_regression,
            "with against: a prediction of predict.py that the step is compared with")  # fmt: skip
    limits = Limits(max_step_ms, max_regression)  # refuses what is none before a file is read
    return limits if against is None else Limits(max_step_ms, max_regression, against, *read_step(Path(against)))


FORMAT, FORMAT_VERSION = "gnnperf.comparison", 1
BAR_WIDTH = 24  # characters
NUM_PARTS = 12  # per table; the JSON has all
LONGER, SHORTER = "red", "green"


def headline(result: Comparison) -> str:
    """Both step times and the change in one line."""
    share = f" ({100.0 * result.change_share:+.1f} %)" if result.a.step_time_us > 0 else ""
    return (
        f"step {result.b.step_time_kind}: {_step(result.a)} -> {_step(result.b)}, "
        f"change {signed(result.change_us)}{share}"
    )  # fmt: skip


def sides(result: Comparison) -> tuple[str, ...]:
    """What A and B are."""
    return tuple(
        f"{letter}: {run_name(Path(side.where))} ({', '.join(filter(None, (side.run, side.who, side.hardware)))})"
        for letter, side in (("A", result.a), ("B", result.b))
    )


def warnings(result: Comparison) -> tuple[str, ...]:
    """What to know before reading the change."""
    texts = [
        f"Step {letter} leaves out work that is not covered: it is a lower bound."
        for letter, side in (("A", result.a), ("B", result.b))
        if side.is_lower_bound
    ]
    if result.a.hardware != result.b.hardware:
        texts.append(f"A is on {result.a.hardware or 'unknown'}, B on {result.b.hardware or 'unknown'} hardware.")
    if result.a.evidence and result.b.evidence and result.a.evidence != result.b.evidence:
        used = f"evidence={result.a.evidence} in A and evidence={result.b.evidence} in B"
        texts.append(f"The predictions start from different evidence: {used}. Predict both with the same.")
    return tuple(texts)


SHOWN_RATES = {  # key of prediction.json -> name, factor
    "samples_per_s": ("samples/s", 1.0),
    "samples_per_s_per_gpu": ("samples/s per GPU", 1.0),
    "tokens_per_s": ("tokens/s", 1.0),
    "tokens_per_s_per_gpu": ("tokens/s per GPU", 1.0),
    "mfu": ("MFU (%)", 100.0),
    "hfu": ("HFU (%)", 100.0),
    "usd_per_million_tokens": ("USD per million tokens", 1.0),
    "usd_per_million_samples": ("USD per million samples", 1.0),
}


def rate_lines(result: Comparison) -> tuple[str, ...]:
    """Throughput, utilization and price of A and B, where both have them."""
    a, b = result.a.rates, result.b.rates
    both = [(*SHOWN_RATES[key], a[key], b[key]) for key in SHOWN_RATES if key in a and key in b]
    return tuple(
        f"{name}: {number_text(one * factor)} -> {number_text(other * factor)}"
        + (f" ({100.0 * (other / one - 1.0):+.1f} %)" if one > 0 else "")
        for name, factor, one, other in both
    )


def rendered(result: Comparison, limits: Limits) -> RenderableType:
    """Everything that is printed. Names come from traces, so nothing is read as markup."""
    return Group(
        *(Text(line, style="dim") for line in sides(result)),
        Text(headline(result), style="bold"),
        *(Text(f"  {line}") for line in rate_lines(result)),
        *(Text(f"warning: {line}", style="yellow") for line in warnings(result)),
        *(_table(by, changes, result) for by, changes in result.changes.items()),
        *(Text(f"exceeded: {line}", style="bold red") for line in limits.exceeded(result)),
    )


def comparison_document(result: Comparison, limits: Limits) -> dict[str, Any]:
    """Every key of the JSON; units are in the names, shares are fractions."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "a": _side(result.a),
        "b": _side(result.b),
        "step_time_kind": str(result.b.step_time_kind),
        "change_us": result.change_us,
        "change_share": result.change_share,
        **{
            f"by_{by.replace(' ', '_')}": [{**asdict(one), "change_us": one.change_us} for one in parts]
            for by, parts in result.changes.items()
        },
        "max_step_ms": limits.max_step_ms,
        "max_regression_percent": limits.max_regression,
        "exceeded": list(limits.exceeded(result)),
        "warnings": list(warnings(result)),
    }


def signed(change_us: float) -> str:
    """A change of time with its sign."""
    return f"{'+' if change_us >= 0 else ''}{time_text(change_us)}"


def _step(side: Side) -> str:
    return f"{'at least ' if side.is_lower_bound else ''}{time_text(side.step_time_us)}"


def _table(by: str, changes: tuple[Change, ...], result: Comparison) -> Table:
    table = Table(title=f"by {by}: time on the critical path", title_justify="left", box=None, pad_edge=False)
    table.add_column(by, overflow="fold")
    for name in ("A", "B", "change", "all ranks A", "all ranks B"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("from A to B", width=BAR_WIDTH, no_wrap=True)
    parts = leading(changes, NUM_PARTS)
    for part, bar in zip(parts, bars([part.change_us for part in parts], result.a.step_time_us), strict=True):
        times = (time_text(part.a_critical_us), time_text(part.b_critical_us), signed(part.change_us))
        summed = (part.a_all_ranks_us, part.b_all_ranks_us) if part.a_num_nodes or part.b_num_nodes else ()
        totals = (*map(time_text, summed),) or ("", "")
        color = LONGER if part.change_us > 0 else SHORTER
        table.add_row(*(Text(td) for td in (part.name, *times, *totals)), Text(bar, style=color))
    return table


def bars(changes_us: list[float], begins_us: float) -> list[str]:
    """One bar per change, each beginning where the one before it ended; the first at step A."""
    ends_us = [begins_us]
    for change_us in changes_us:
        ends_us.append(ends_us[-1] + change_us)
    low_us, span_us = min(ends_us), max(ends_us) - min(ends_us)
    places = [round(BAR_WIDTH * (us - low_us) / span_us) if span_us > 0 else 0 for us in ends_us]
    return [
        " " * min(*pair, BAR_WIDTH - 1) + ("█" * (max(pair) - min(pair)) or "▏") for pair in itertools.pairwise(places)
    ]


def _side(side: Side) -> dict[str, Any]:
    return {
        "where": run_name(Path(side.where)),
        "run": side.run,
        "who": side.who,
        "hardware": side.hardware or None,
        "step_time_us": side.step_time_us,
        "step_time_is_lower_bound": side.is_lower_bound,
        "throughput": side.rates or None,
    }
