"""What the network corrects: analytical constants and floors, of the training runs or of an earlier training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gnnperf.analytic import AnalyticConstants, fit_constants, read_calibrated_calls
from gnnperf.core import InputError
from gnnperf.gnn.data.config import DataConfig
from gnnperf.gnn.data.earlier import Earlier
from gnnperf.gnn.data.floors import TypedFloors, fit_floors
from gnnperf.gnn.data.processors import processors_of
from gnnperf.gnn.data.runs import RunStep


def fit_base(
    config: DataConfig, train: Sequence[RunStep], recording: str, earlier: Earlier | None
) -> tuple[AnalyticConstants, TypedFloors]:
    """What the network corrects: what it corrected before, else constants and floors of the training runs.

    Args:
        config: names the op tables.
        train: the training runs.
        recording: one of theirs, whose card names the machine.
        earlier: of the network that trains on; None: a new one.

    Raises:
        InputError: runs on GPUs and on CPUs, no measured latency, an earlier training that was not of such data; as
            _fit_constants.
    """
    kinds = sorted({run.cluster.device.kind for run in train})
    if len(kinds) > 1:
        raise InputError("training runs on GPUs and on CPUs", where=config.path, remedy="split them into two data sets")
    floors = replace(fit_floors([run.graph.nodes for run in train]), residual=config.residual_target)
    if earlier is not None:
        earlier.check(kinds[0], config.residual_target)
        if earlier.base is not None:
            return earlier.base
    return _fit_constants(config, train, recording), floors


def _fit_constants(config: DataConfig, train: Sequence[RunStep], recording: str) -> AnalyticConstants:
    """The analytical base, from training runs only; on CPUs with the calibrated ops of the data set's machine.

    Args:
        config: names the op tables.
        train: the training runs, on one kind of device.
        recording: one of theirs, whose card names the machine.

    Raises:
        InputError: an op table of another processor than the runs', by name: tables do not say its vectors.
    """
    device = train[0].cluster.device
    tables = [Path(path).expanduser() for path in config.op_tables if device.kind == "cpu"]
    calibrated = read_calibrated_calls(tables)
    ours = {processor.name for processor in processors_of([Path(config.path).expanduser() / recording])}
    if calibrated is not None and ours and set(calibrated["device"]) != ours:
        theirs = ", ".join(sorted(set(calibrated["device"])))
        raise InputError(f"op tables of {theirs}, runs on {', '.join(sorted(ours))}", where="data.op_tables",
                         remedy="data.op_tables=[], or tables of the runs' machine")  # fmt: skip
    return fit_constants([run.graph for run in train], device, calibrated)
