"""`gnnperf record demo` and `gnnperf record dataset`. torch is loaded by what runs, not by the parser."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

WORKLOADS = ("dlrm", "transformer", "cnn")
PLAN_NAMES = ("cpu-gloo",)


def add_parsers(subparsers: Any) -> None:
    """Add `record` with its sub-forms."""
    record = subparsers.add_parser("record", help="profile real training runs on this machine")
    forms = record.add_subparsers(dest="form", required=True, metavar="FORM")
    demo = forms.add_parser("demo", help="record one small two-rank run")
    demo.add_argument("--out", type=Path, required=True, metavar="DIR", help="the run directory to write")
    demo.add_argument("--workload", choices=WORKLOADS, default="dlrm", help="training program (default: %(default)s)")
    demo.set_defaults(run=_demo)
    dataset = forms.add_parser(
        "dataset",
        help="record a whole data set and build it; runs that are there already are kept",
        description="Nothing else should run on the machine meanwhile: a probe rejects runs during which it changed.",
    )
    dataset.add_argument("--plan", choices=PLAN_NAMES, default="cpu-gloo", help="what to record (default: %(default)s)")
    dataset.add_argument("--raw", type=Path, required=True, metavar="DIR", help="where raw traces go, and are kept")
    dataset.add_argument("--out", type=Path, required=True, metavar="DIR", help="the data set's folder")
    dataset.set_defaults(run=_dataset)


def _demo(arguments: argparse.Namespace) -> int:
    from gnnperf.record.launch import RankFailed
    from gnnperf.record.run import Steps, record_run
    from gnnperf.record.workloads.cnn import Cnn
    from gnnperf.record.workloads.dlrm import Dlrm
    from gnnperf.record.workloads.transformer import Transformer

    workload = {"dlrm": Dlrm, "transformer": Transformer, "cnn": Cnn}[arguments.workload]()
    try:
        record_run(arguments.out, workload, Steps())
    except RankFailed as failure:
        print(f"gnnperf: {arguments.out}: {failure}; the run is marked broken")
        return 1
    print(f"{arguments.out}: {workload.name}, complete")
    return 0


def _dataset(arguments: argparse.Namespace) -> int:
    from gnnperf.record.build import build
    from gnnperf.record.cpu_gloo import PLANS
    from gnnperf.record.dataset import record_all

    plan = PLANS[arguments.plan]()
    outcomes = record_all(plan, arguments.raw, lambda line: print(line, flush=True))
    left = [outcome for outcome in outcomes if not outcome.accepted]
    if left:
        print(f"gnnperf: {len(left)} of {len(outcomes)} runs were not accepted; run the same command again to go on")
        return 1
    size_bytes = build(plan, arguments.raw, arguments.out)
    print(f"{arguments.out}: {len(outcomes)} runs, {size_bytes / 1e6:.2f} MB")
    return 0
