"""What is drawn: the nodes of a prediction's folder, or of a trace that is predicted here, and their devices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from gnnperf.core import InputError
from gnnperf.hardware import DeviceSpec, device_from, load_device, match_device
from gnnperf.predict import Request, predict
from gnnperf.report.compare.side import AGAIN, DOCUMENT, NODES, is_prediction, read_document, read_nodes
from gnnperf.report.json_document import document
from gnnperf.report.summary import nodes_table

NUMBERS = ("flops", "bytes", "latency_us", "measured_latency_us")
COLUMNS = ("node_type", "family", "dtype", *NUMBERS)


@dataclass(frozen=True)
class Source:
    """Attributes: title: run and step; nodes: [num_nodes] COLUMNS; predicted_on, measured_on: see `pictures_of`."""

    title: str
    nodes: pd.DataFrame
    predicted_on: DeviceSpec
    measured_on: DeviceSpec | None


def read_source(path: Path, hardware: str | None, checkpoint: Path | None, step: int | None) -> Source:
    """A prediction's folder, or a trace."""
    if not path.exists():
        raise InputError("no such file or directory", where=str(path),
                         allowed="a folder that predict.py wrote, or a trace")  # fmt: skip
    device = None if hardware is None else load_device(hardware)
    if is_prediction(path):
        for name, value in (("--checkpoint", checkpoint), ("--step", step)):
            if value is not None:
                raise InputError("has no use for a prediction", where=name, allowed="with a trace")
        given = read_document(path / DOCUMENT)
        return _source(given, read_nodes(path / NODES, COLUMNS), device, str(path / DOCUMENT))
    answer = predict(Request(trace=path, hardware=device, checkpoint=checkpoint, step=step))
    return _source(document(answer), nodes_table(answer)[list(COLUMNS)], device, str(path))


def _source(given: dict[str, Any], nodes: pd.DataFrame, device: DeviceSpec | None, where: str) -> Source:
    try:
        title = f"{given['run']}, step {given['step']}, mode {given['mode']}"
        name, traced, same = given["hardware"], given["traced_hardware"], given["measured_step_time_us"] is not None
    except KeyError as error:
        raise InputError(f"has no key {error}", where=where, remedy=AGAIN) from error
    predicted_on = device or _predicted(given, "hardware_numbers", where) or _device(str(name or ""), where)
    traced_on = _predicted(given, "traced_hardware_numbers", where) or match_device(str(traced or ""))
    measured_on = predicted_on if same else traced_on
    try:
        numbers = nodes.astype(dict.fromkeys(NUMBERS, "float64"))
    except (TypeError, ValueError) as error:
        raise InputError(f"a column is no number ({error})", where=where, remedy=AGAIN) from error
    return Source(title, numbers, predicted_on, measured_on)


def _predicted(given: dict[str, Any], key: str, where: str) -> DeviceSpec | None:
    """The device whose numbers the document holds; None: it holds none, as those of versions before did not."""
    numbers = given.get(key)
    if numbers is None:
        return None
    if not isinstance(numbers, dict):
        raise InputError(f"{numbers!r} are no numbers of a device", where=f"{where}, key {key!r}", remedy=AGAIN)
    result = device_from(numbers, f"{where}, key {key!r}")
    known = match_device(result.name)
    return known if known is not None and result == replace(known, source="", host={}, provenance={}) else result


def _device(name: str, where: str) -> DeviceSpec:
    """The catalog's device of that name, or of that name in traces."""
    result = match_device(name)
    if result is None:
        raise InputError(f"the device {name!r} is not in the catalog", where=where,
                         remedy="pass --hardware NAME, or the .yaml file that it was predicted for")  # fmt: skip
    return result
