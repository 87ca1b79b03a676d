"""Claims of BENCHMARKS.md, and the saved results that they state."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from gnnperf.core import InputError

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "benchmarks" / "results"
RUN = "python -m research.benchmarks "
_commit = ""  # of the measured code, while results are saved


@dataclass(frozen=True)
class Statement:
    """A row of BENCHMARKS.md."""

    text: str  # what was measured
    targets: tuple[float | None, ...]  # of each value, in the statement's unit; None: no target
    command: str  # prints the values
    evidence: str  # page and anchor below docs/benchmarks
    unit: str = " %"  # behind the values
    at_least: bool = False  # values must be no less than their targets; else no more
    digits: int = 1  # behind the point


@dataclass(frozen=True)
class Result:
    """Measured values of a statement."""

    values: tuple[float, ...]  # in the statement's unit
    interval: tuple[float, float] | None  # 95 % bounds of the first value
    commit: str  # that measured it
    date: str  # of the measurement
    source: str  # "command": saved by it; "page": copied from a page of evidence, where the command was not run again


NEW, NETWORK = "new-traces.md", "network.md#the-learned-predictor-and-simpler-learners"
PROGRAMS = "unseen-programs.md#programs-that-nothing-was-fitted-on"
STATEMENTS = {
    "trace_own_gpu": Statement("own GPU, default prediction of public GPU traces (rebuilt step), median / p90 error",
                           (1.0, 5.0), RUN + "trace_evidence", f"{NEW}#the-step-on-its-own-gpu", digits=2),
    "trace_uncovered": Statement("the same, measured nodes that end uncovered", (0.0,), RUN + "trace_evidence",
                             f"{NEW}#the-step-on-its-own-gpu", "", digits=0),
    "trace_blind": Statement("blind prediction of the same steps (`evidence=none`), median error", (None,),
                         RUN + "trace_evidence", f"{NEW}#the-step-on-its-own-gpu"),
    "trace_forecast": Statement("forecast of a step from other steps, median error over runs", (3.0,),
                            RUN + "trace_evidence", f"{NEW}#forecasts-from-other-steps", digits=2),
    "trace_forecast_copy": Statement("forecast no worse than a copy of another step, share of runs", (90.0,),
                                 RUN + "trace_evidence", f"{NEW}#forecasts-from-other-steps", at_least=True, digits=0),
    "collectives_matched": Statement("collectives matched over ranks, worst of nine runs", (98.0,), RUN + "replay",
                                 "graph.md#collectives-matched-over-ranks", at_least=True),
    "unprofiled_steps": Statement("60 H200 runs without the profiler, from their profiles, mean / p90 error",
                                  (None, None), RUN + "unprofiled_steps", f"{NEW}#the-step-without-the-profiler"),
    "second_gpu": Statement("36 runs of an H100, blind, mean / p90 error (first look 10.5 / 23.9 %)",
                            (None, None), RUN + "second_gpu", "transfer.md#a-second-gpu-of-our-own"),
    "replay": Statement("strict replay of public GPU runs, step, median / p90 error", (1.0, None), RUN + "replay",
                    "graph.md#strict-replay", digits=2),
    "import_speed": Statement("import of 109,123 events, speed relative to HolisticTraceAnalysis", (8.0,),
                          RUN + "speed --peer PYTHON_WITH_HTA", "speed.md", "x", at_least=True),
    "commands": Statement("`gnnperf --help`, `predict.py --help`, a recorded step, a plan of 16,384 ranks",
                          (0.3, 0.8, 2.0, 8.0), RUN + "speed --commands", "speed.md", " s", digits=2),
    "many_ranks": Statement("first prediction of a trace of 64 ranks, another one", (15.0, None),
                            RUN + "speed --ranks 64", "speed.md", " s"),
    "long_trace": Statement("trace of 1 GB: import, first prediction", (10.0, 15.0), RUN + "speed --times 29",
                            "speed.md#one-long-trace", " s"),
    "interventions": Statement("known changes above noise, measured latencies, median error of the change", (10.0,),
                           "gnnperf interventions datasets/cpu-gloo", "recorded-data.md#recorded-data-interventions"),
    "vtrain": Statement("1,440 transformer steps from configuration (simulated labels), mean error", (20.0,),
                    RUN + "vtrain", "plans.md#plans-steps-that-never-ran"),
    "peak_memory": Statement("peak memory of recorded runs, test part, mean error", (8.0,), RUN + "peak_memory",
                         "memory.md#peak-memory"),
    "plan_memory": Statement("peak memory of 40 plans against torch's own accounting, mean / largest error",
                             (5.0, 10.0), RUN + "plan_memory", "memory.md#peak-memory-of-plans"),
    "published_steps": Statement("published training speeds of 15 configurations, mean error", (12.0,),
                                 RUN + "published_steps", "plans.md#plans-as-published"),
    "step_lengths": Statement("steps of several lengths from a trace of one, error of p10 / p50 / p90",
                              (10.0, 10.0, 10.0), RUN + "step_lengths", "edits.md#steps-of-several-lengths"),
    "unseen_programs": Statement("steps of two programs never looked at, mean error", (15.0,), RUN + "unseen_programs",
                             PROGRAMS),
    "whole_models": Statement("whole models, unseen A100-80GB / L4, mean error", (7.6, 12.4), RUN + "whole_models",
                          "transfer.md#whole-models-on-neusights-rows"),
    "learned_size": Statement("network: nodes of unseen sizes, GMAE (another recording 10.6 %)", (15.9,),
                          RUN + "learned --seeds 0 --splits size", NETWORK),
    "learned_workload": Statement("network: nodes / steps of an unseen program (analytical steps 7.4 %)", (18.6, 12.0),
                              RUN + "learned --seeds 0 1 2 3 4 --splits workload", NETWORK),
    "learned_more": Statement("the same, eight more programs in training", (18.6, 12.0),
                          RUN + "learned --seeds 0 --splits workload+cpu-unseen",
                          "network.md#more-programs-to-train-on"),
    "search_spaces": Statement("search: step of the pick over the best of 20 small spaces, largest excess", (1.0,),
                               RUN + "search --spaces", "plans.md#search", digits=2),
    "search_vtrain": Statement("search on 1,440 simulated labels: label of the pick over the best one, mean", (5.0,),
                               RUN + "search --vtrain", "plans.md#search"),
    "search_family": Statement("the same: division of the pick is that of the best label", (80.0,),
                               RUN + "search --vtrain", "plans.md#search", at_least=True, digits=0),
    "machine_transfer_again": Statement(
        "network: nodes / steps of another machine, from runs of the first and 8 shared ones", (14.0, 6.0),
        RUN + "machine_transfer", "intervals.md#from-one-machine-to-another"),
    "machine_transfer_random": Statement(
        "the same, a third machine", (14.0, 6.0), RUN + "machine_transfer", "intervals.md#from-one-machine-to-another"),
}  # fmt: skip


def start_saving() -> None:
    """Save what the command measures.

    Raises InputError: files are changed, so that no commit names the measured code.
    """
    global _commit
    if _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs", ":!BENCHMARKS.md"):
        raise InputError("files are changed", where="--save", remedy="commit them first")
    _commit = _git("rev-parse", "--short=8", "HEAD")


def measured_at() -> tuple[str, str]:
    """Commit of the measured code, "" without `--save`, and the date."""
    return _commit, f"{datetime.now(UTC):%Y-%m-%d}"


def save_result(name: str, *values: float, interval: tuple[float, float] | None = None) -> None:
    """Keep the values of a statement, if the command line has `--save`."""
    if _commit:
        write_result(name, Result(values, interval, *measured_at(), "command"))


def write_result(name: str, result: Result) -> None:
    """Write docs/benchmarks/results/NAME.json."""
    if len(result.values) != len(STATEMENTS[name].targets):
        raise ValueError(f"{name} has {len(STATEMENTS[name].targets)} values")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8")


def read_result(name: str) -> Result:
    """The saved result of a statement."""
    given = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    interval = given["interval"]
    return Result(tuple(given["values"]), interval and tuple(interval), given["commit"], given["date"], given["source"])


def row(statement: Statement, result: Result) -> Sequence[str]:
    """Cells of BENCHMARKS.md: statement, value, interval, target, met, command, date."""
    values = " / ".join(f"{value:,.{statement.digits}f}" for value in result.values) + statement.unit
    interval = "-" if result.interval is None else "{:.1f} to {:.1f}".format(*result.interval) + statement.unit
    known = [target for target in statement.targets if target is not None]
    shown = " / ".join("-" if target is None else f"{target:g}" for target in statement.targets)
    target = f"{'at least' if statement.at_least else 'at most'} {shown}{statement.unit}" if known else "-"
    pairs = zip(result.values, statement.targets, strict=True)
    met = [value >= t if statement.at_least else value <= t for value, t in pairs if t is not None]
    verdict = " / ".join("yes" if one else "no" for one in met) or "-"
    date = result.date + (f" ({result.commit})" if result.source == "command" else f" (page, {result.commit})")
    text = f"[{statement.text}](docs/benchmarks/{statement.evidence})"
    return text, values, interval, target, verdict, f"`{statement.command}`", date


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
