"""Which rows of op tables train and judge, which GPUs are left out together, and samples that repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.analytic import has_forms
from gnnperf.analytic.convolution.calls import TF32
from gnnperf.analytic.gemm.model import rate_key
from gnnperf.core import InputError
from gnnperf.hardware import DeviceSpec, match_device
from gnnperf.trace.public.catalog import Entry, load_catalog
from research.pretraining.forms import form_names
from research.tables import OpTable, aiconfigurator, joined, neusight, read_aiconfigurator, read_neusight
from research.tables.columns import CONVOLUTION

NO_DEVICE = "device that the catalog does not know, or that the closed forms were not made for"
NO_FORM = "op without a closed form that is fitted again for every GPU left out"
CHIP, GENERATION = "chip", "generation"


def usable(table: OpTable) -> OpTable:
    """Rows with a device and a closed form, with columns `generation` and `chip`; what is left out is counted.

    A chip is a generation and a number of SMs: boards that differ in memory and power are left out with each other.
    """
    rows = table.rows
    devices = {str(name): match_device(str(name)) for name in rows["device"].unique()}
    known = rows["device"].map({name: d is not None and has_forms(d) for name, d in devices.items()}).to_numpy(bool)
    formed = form_names(rows) != ""  # [n]
    dropped = dict(table.dropped)
    for source, here in rows.groupby("source").indices.items():
        counts = {NO_DEVICE: (~known[here]).sum(), NO_FORM: (known[here] & ~formed[here]).sum()}
        dropped |= {f"{source}: {reason}": int(count) for reason, count in counts.items() if count}
    retained = rows[known & formed].reset_index(drop=True)
    if retained.empty:
        raise InputError("no row with a known device and op", where="op tables", remedy="gnnperf data fetch")
    result = {name: device for name, device in devices.items() if device is not None}
    generation = retained["device"].map({name: d.architecture or d.name for name, d in result.items()})
    chip = retained["device"].map({name: f"{d.architecture or d.name}/{d.num_sms}" for name, d in result.items()})
    return OpTable(retained.assign(**{GENERATION: generation, CHIP: chip}), dropped)


def spec_of(name: str) -> DeviceSpec:
    result = match_device(name)
    if result is None:
        raise InputError(f"device {name!r}", where="op table", remedy="add it to conf/hardware")
    return result


def sampled(rows: pd.DataFrame, per_group: int, by: Sequence[str], seed: int) -> np.ndarray:
    """Positions of at most so many rows of each group, ascending; the same for the same seed."""
    mixed = np.random.default_rng(seed).permutation(len(rows))
    place = rows.iloc[mixed].groupby(list(by), sort=False).cumcount().to_numpy()
    result: np.ndarray = np.sort(mixed[place < per_group])
    return result


# Op tables that weights which ship may be trained on: merged files under a plain MIT, BSD or Apache-2.0 license.

PLAIN_LICENSES = ("MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0")  # the catalog adds words where there is more
OP_TABLE = "op-table"
READERS: tuple[tuple[str, Callable[[Path], OpTable]], ...] = (
    (aiconfigurator.SOURCE, read_aiconfigurator),
    (neusight.SOURCE, read_neusight),
)


@dataclass(frozen=True)
class Source:
    """One repository.

    Attributes:
        repo: owner/name.
        license: of its op tables.
        commits: that they were published in.
        files: how many.
    """

    repo: str
    license: str
    commits: tuple[str, ...]
    files: int


def sources(entries: Iterable[Entry] | None = None) -> tuple[Source, ...]:
    """The repositories that ship with the weights, as the catalog of public files has them."""
    every = list(load_catalog() if entries is None else entries)
    return tuple(_source(repo, [e for e in every if e.repo == repo and e.kind == OP_TABLE]) for repo, _ in READERS)


def read_sources(mirror: Path) -> OpTable:
    result = joined(read(mirror) for _, read in READERS)
    if result.rows.empty:
        raise InputError("no op tables", where=str(mirror), remedy="gnnperf data fetch --kind op-table")
    return result


def _source(repo: str, entries: list[Entry]) -> Source:
    licenses = sorted({entry.license for entry in entries})
    if len(licenses) != 1 or licenses[0] not in PLAIN_LICENSES:
        raise InputError(f"license {', '.join(licenses) or 'unknown'} of {repo}", where="weights that ship",
                         allowed=", ".join(PLAIN_LICENSES))  # fmt: skip
    return Source(repo, licenses[0], tuple(sorted({e.commit for e in entries if e.commit})), len(entries))


# Kinds of ops that a network of op tables may answer in traces, and the table that tells each.
#
# Memory-bound kernels are not among them: the tables timed them with operands in the cache, traces run them without.


@dataclass(frozen=True)
class Kind:
    """One kind of op.

    Attributes:
        name: as the model card says it.
        op: as the table names it; calls of traces come from their sizes.
        dtype: of all tensors.
        source: repository that published the table.
        table: the table's own name.
        method: how it was measured.
        launch_included: whether the wait for the launch is in its latencies.
    """

    name: str
    op: str
    dtype: str
    source: str
    table: str
    method: str
    launch_included: bool


LINEAR, BATCHED = "aten::linear", "aten::bmm"
MATRIX_PRODUCTS = Kind("products, bfloat16", LINEAR, "bfloat16", aiconfigurator.SOURCE, "gemm",
                       aiconfigurator.METHOD, False)  # fmt: skip
PRODUCTS = Kind("products, float32", LINEAR, "float32", neusight.SOURCE, "linear", neusight.METHOD, True)
BATCHED_PRODUCTS = Kind("batched products, float32", BATCHED, "float32", neusight.SOURCE, "bmm", neusight.METHOD, True)
CONVOLUTIONS = Kind("convolutions, float32", CONVOLUTION, "float32", neusight.SOURCE, "conv", neusight.METHOD, True)
KINDS = (MATRIX_PRODUCTS, PRODUCTS, BATCHED_PRODUCTS, CONVOLUTIONS)


def kind_names(rows: pd.DataFrame) -> np.ndarray:
    """[n] name of the kind of op-table rows (research.pretraining.rows.usable), "" for none.

    Convolutions of GPUs with TF32 are of none: the tables ran them without it, programs run them with it.
    """
    result = np.full(len(rows), "", dtype=object)
    for kind in KINDS:
        here = (rows["source"] == kind.source) & (rows["table"] == kind.table) & (rows["dtype"] == kind.dtype)
        result[here.to_numpy(bool)] = kind.name
    tf32 = {name for name in rows["device"].unique() if convolves_in_tf32(spec_of(str(name)))}
    result[rows["device"].isin(tf32).to_numpy(bool) & (result == CONVOLUTIONS.name)] = ""
    return result


def convolves_in_tf32(device: DeviceSpec) -> bool:
    """Whether float32 convolutions use matrix units as programs run them."""
    return rate_key(device, CONVOLUTIONS.dtype, TF32).endswith("_matrix")
