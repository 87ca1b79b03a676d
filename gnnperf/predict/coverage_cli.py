"""`gnnperf coverage TRACE`: who would answer for what, and what to measure for the rest."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnperf.core import InputError, say

if TYPE_CHECKING:
    from gnnperf.predict.step_prediction import StepPrediction

DESCRIPTION = """\
Who would answer for which part of a trace, before its prediction is believed.

  gnnperf coverage TRACE --checkpoint FILE                  shares by source, ops that nobody answers for
  gnnperf coverage TRACE --ops ops.jsonl                    ... and the list that `gnnperf calibrate --ops` measures
  gnnperf coverage TRACE --measured mine/ops.parquet        with what was measured
  gnnperf coverage TRACE --hardware NAME --ops ops.jsonl --choose 64
                                                            64 calls that tell most about all others, on a new device
"""


def add_parsers(subparsers: Any) -> None:
    """Add `coverage`."""
    parser = subparsers.add_parser("coverage", help="who would answer for which part of a trace",
                                   description=DESCRIPTION,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("trace", type=Path, help="trace file, directory of rank files, or archive")
    parser.add_argument("--checkpoint", type=Path, help="a trained model")
    parser.add_argument("--measured", type=Path, help="ops that you measured (gnnperf calibrate --ops)")
    parser.add_argument("--hardware", metavar="NAME", help="device to predict for; default: the trace's own")
    parser.add_argument("--ops", type=Path, metavar="FILE", help="write the calls to measure, one JSON line each")
    parser.add_argument("--choose", type=int, metavar="N",
                        help="list at most N calls by which answers for the others are corrected")  # fmt: skip
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from gnnperf.core import write_text
    from gnnperf.hardware import load_device
    from gnnperf.predict.api import predict
    from gnnperf.predict.choose_calls import calls_to_measure
    from gnnperf.predict.fallback import ops_to_measure
    from gnnperf.predict.request import Request

    if arguments.ops is not None and arguments.ops.exists():
        raise InputError("is there already", where=str(arguments.ops), remedy="name another file")
    if arguments.choose is not None and arguments.ops is None:
        raise InputError("has no file to write", where="--choose", remedy="add --ops FILE")
    hardware = None if arguments.hardware is None else load_device(arguments.hardware)
    answer = predict(Request(arguments.trace, hardware=hardware, checkpoint=arguments.checkpoint,
                             measured=arguments.measured))  # fmt: skip
    for line in coverage_lines(answer):
        say(line)
    chosen = arguments.choose
    lines = list(ops_to_measure(answer) if chosen is None else calls_to_measure(answer, chosen))
    if arguments.ops is not None:
        write_text(arguments.ops, "".join(f"{line}\n" for line in lines))
        say(f"{arguments.ops}: {len(lines)} calls; gnnperf calibrate --out mine --ops {arguments.ops}")
    return 0


def coverage_lines(answer: StepPrediction) -> Iterator[str]:
    """What is printed: a line per source, then the ops that nothing answers for."""
    from gnnperf.predict.fallback import ops_to_measure, uncovered_share

    prediction = answer.prediction
    nodes = prediction.graph.nodes.assign(source=[str(source) for source in prediction.source])
    nodes = nodes[~nodes["node_type"].isin(["device", "link"])]
    measured_us = nodes["latency_us"].sum()
    for source, rows in nodes.groupby("source", sort=False):
        of_measured = f"{rows['latency_us'].sum() / measured_us:.1%}" if measured_us > 0 else "unknown"
        yield (f"{source}: {len(rows):,} nodes, {of_measured} of the measured node time, "
               f"{answer.source_share.get(str(source), 0.0):.1%} of the predicted step time")  # fmt: skip
    if not answer.uncovered_ops:
        yield "every op is covered"
        return
    yield f"not covered: {uncovered_share(answer):.1%} of the step"
    for name, count in answer.uncovered_ops.items():
        yield f"  {name}: {count:,} nodes"
    calls = len(list(ops_to_measure(answer)))
    yield (
        f"{calls} distinct calls have shapes: gnnperf coverage TRACE --ops ops.jsonl lists "
        "them, gnnperf calibrate --out mine --ops ops.jsonl measures them, measured=mine/ops.parquet uses them"
    )
