"""Constants of the closed forms for folds that leave GPUs out, fitted once and kept by fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from inspect import getsource
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.analytic.constants_file import constants_from
from gnnperf.analytic.convolution.model import ConvolutionConstants
from gnnperf.analytic.gemm.constants import GemmConstants
from gnnperf.analytic.memory_bound.constants import EventGap, MemoryConstants, MemorySystem, RowKernel
from gnnperf.core import write_text
from gnnperf.gnn.data.cache import fingerprint
from research.pretraining.forms import FormConstants, fit_forms


def retained_forms(rows: pd.DataFrame, folder: Path) -> FormConstants:
    """`fit_forms(rows)`, from the folder where the same code fitted the same rows before."""
    numbers = [rows[name].to_numpy() for name in ("latency_us", "flops", "moved_bytes", "calls_before")]
    digest = hashlib.sha256(b"".join(np.nan_to_num(n).tobytes() for n in numbers)).hexdigest()
    names = sorted(rows["device"].unique())
    path = folder / f"forms-{fingerprint(getsource(fit_forms), digest, names, len(rows))}.json"
    if not path.is_file():
        _write(path, fit_forms(rows))
    return _read(path)


def _write(path: Path, constants: FormConstants) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(asdict(constants)))


def _read(path: Path) -> FormConstants:
    raw = json.loads(path.read_text(encoding="utf-8"))
    gemm = {family: tuple(constants_from(member, GemmConstants, str(path)) for member in members)
            for family, members in raw["gemm"].items()}  # fmt: skip
    memory = raw["memory"]
    if memory is not None:
        gaps = {name: EventGap(**gap) for name, gap in memory["gaps"].items()}
        systems = {name: MemorySystem(**system) for name, system in memory["systems"].items()}
        rows_of = {name: _kernels(rows) for name, rows in memory["rows_of"].items()}
        given = {"rows": _kernels(memory["rows"]), "gaps": gaps, "systems": systems, "rows_of": rows_of}
        memory = MemoryConstants(**{**memory, **given})
    convolution = raw["convolution"] and ConvolutionConstants(**raw["convolution"])
    return FormConstants(gemm, memory, convolution, tuple(raw["devices"]))


def _kernels(raw: Mapping[str, Mapping[str, float]]) -> dict[str, RowKernel]:
    return {name: RowKernel(**kernel) for name, kernel in raw.items()}
