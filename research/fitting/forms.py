"""The base of op-table rows: closed forms with constants that are fitted again without the GPUs that are left out.

    rows                          form                                   constants
    products (m, n, k)            analytic.gemm, operands in turn        fitting.gemm: per family of kernels
    elementwise, softmax, norm    analytic.memory_bound, rows            fitting.memory
    convolution                   analytic.convolution                   both of these, and fitting.convolution

The constants that ship saw every GPU of the tables: `shipped_forms` is for predictions of others, never for judging.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from inspect import getsource
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.analytic import has_forms
from gnnperf.analytic.constants_file import constants_from
from gnnperf.analytic.convolution.model import ConvolutionConstants, default_convolution_constants
from gnnperf.analytic.gemm.constants import VERSION, GemmConstants, Members, default_gemm_constants
from gnnperf.analytic.gemm.model import members_on, tiled_us
from gnnperf.analytic.kernels.call import Setting
from gnnperf.analytic.memory_bound import constants as bound
from gnnperf.core import InputError, write_text
from gnnperf.gnn.data.cache import fingerprint
from gnnperf.hardware import DeviceSpec, match_device
from research.benchmarks._op_tables import sample
from research.fitting.convolution import fit_convolution_constants, forward_algorithms
from research.fitting.gemm import fit_for_others, measured
from research.fitting.memory import device_us, fit_memory_constants
from research.tables import OpTable, grouped, spec_of

PRODUCT, STREAM, CONVOLUTION = "product", "stream", "convolution"
MATRIX, VECTOR, VECTOR_BATCHED = "matrix", "vector", "vector_batched"
DTYPE = "float32"  # of rows that STREAM and CONVOLUTION were made for
CHUNK_ROWS = 4000
FITTED_ROWS = 300  # of each device, to fit products
FOLD = "fitted inside a fold"
NO_DEVICE = "device that the catalog does not know, or that the closed forms were not made for"
NO_FORM = "op without a closed form that is fitted again for every GPU left out"
GENERATION = "generation"


@dataclass(frozen=True)
class FormConstants:
    """Constants of all forms, fitted on the same GPUs."""

    gemm: Mapping[str, Members]  # family of kernels -> its members; only families that were measured
    memory: bound.MemoryConstants | None  # of streams and rows; None: none were measured
    convolution: ConvolutionConstants | None  # None: none were measured, or products on lanes or streams were not
    devices: tuple[str, ...]  # names of the GPUs that they were fitted on


def form_names(rows: pd.DataFrame) -> np.ndarray:
    """[n] which form a row has, "" for none.

    Streams and convolutions in float32 forward only: those are what their constants are fitted on.
    """
    forward = ((rows["direction"] == "forward") & ~rows["tf32"]).to_numpy(bool)
    plain = forward & (rows["dtype"] == DTYPE).to_numpy()
    product = forward & rows[["m", "n", "k"]].notna().all(axis=1).to_numpy()
    window = plain & rows["kernel"].notna().to_numpy()
    streams = plain & rows["rows"].notna().to_numpy() & (rows["cache"] == "warm").to_numpy()
    streams &= rows["launch_included"].to_numpy(bool)
    return np.select([product, window, streams], [PRODUCT, CONVOLUTION, STREAM], "").astype(object)


def usable(table: OpTable) -> OpTable:
    """Rows with a device and a closed form, with a column `generation`; what is left out is counted."""
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
    return OpTable(retained.assign(**{GENERATION: generation}), dropped)


def sampled(rows: pd.DataFrame, per_group: int, by: Sequence[str], seed: int) -> np.ndarray:
    """Positions of at most so many rows of each group, ascending; the same for the same seed."""
    mixed = np.random.default_rng(seed).permutation(len(rows))
    place = rows.iloc[mixed].groupby(list(by), sort=False).cumcount().to_numpy()
    result: np.ndarray = np.sort(mixed[place < per_group])
    return result


def families(rows: pd.DataFrame) -> np.ndarray:
    """[n] family of kernels of products: matrix units, or lanes with or without a batch (`gemm.family_of`)."""
    lanes = np.where(rows["op"].isin(["aten::bmm", "aten::baddbmm"]), VECTOR_BATCHED, VECTOR)
    result: np.ndarray = np.where(rows["dtype"].isin(["float32", "float64"]), lanes, MATRIX)
    return result


def rate_key_of(family: str) -> str:
    return "bfloat16_matrix" if family == MATRIX else "float32"


def fit_forms(rows: pd.DataFrame) -> FormConstants:
    """Constants from these rows only (`usable`).

    Products that were measured in other ways are not mixed: each family takes the method with most rows.
    """
    forms = form_names(rows)
    products, streams = rows[forms == PRODUCT], rows[forms == STREAM]
    gemm = {}
    for family, places in products.groupby(families(products)).indices.items():
        part = products.iloc[places]
        part = part[part["method"] == part["method"].value_counts().index[0]]
        gemm[str(family)] = fit_for_others(sample(part, FITTED_ROWS))
    devices = {str(name): spec_of(str(name)) for name in rows["device"].unique()}
    memory = fit_memory_constants(streams, devices, FOLD) if len(streams) else None
    convolved, convolution = rows[forms == CONVOLUTION], None
    if len(convolved) and memory is not None and VECTOR in gemm:
        convolution = fit_convolution_constants(convolved, devices, on_lanes(gemm), memory, FOLD)
    return FormConstants(gemm, memory, convolution, tuple(sorted(devices)))


def shipped_forms() -> FormConstants:
    """The constants that ship: of conf/analytic, fitted on every GPU of the tables. Not for judging on those."""
    memory = bound.default_memory_constants()
    return FormConstants(default_gemm_constants(), memory, default_convolution_constants(), ())


def base_us(rows: pd.DataFrame, constants: FormConstants) -> np.ndarray:
    """[n] us that the device takes, without the launch; never NaN."""
    result = np.full(len(rows), np.nan)
    kinds = rows.assign(form=form_names(rows), family=families(rows))
    for (device, form, family, _), places in grouped(kinds, ("device", "form", "family", "dtype")):
        for part in np.array_split(places, -(-len(places) // CHUNK_ROWS)):
            result[part] = _form_us(rows.iloc[part], form, family, spec_of(device), constants)
    return result


def _form_us(rows: pd.DataFrame, form: str, family: str, device: DeviceSpec, constants: FormConstants) -> np.ndarray:
    """[n] us of rows of one device, form, family and dtype."""
    lacking = (form == PRODUCT and family not in constants.gemm) or (form == STREAM and constants.memory is None)
    if form == "" or lacking or (form == CONVOLUTION and constants.convolution is None):
        what = f"{form or 'unknown'} op {rows['op'].iloc[0]} in {rows['dtype'].iloc[0]}"
        raise InputError(what, where="base of op tables", allowed=", ".join(constants.gemm),
                         remedy="fit with rows of that kind")  # fmt: skip
    if form == PRODUCT:
        data = measured(rows)
        members = members_on(device, constants.gemm[family], rate_key_of(family))
        return tiled_us(data.result, data.numbers, members, launch_included=False)
    assert constants.memory is not None
    if form == CONVOLUTION:
        assert constants.convolution is not None
        setting = Setting(device, constants.memory, on_lanes(constants.gemm), constants.convolution)
        return forward_algorithms(rows, setting).fastest_us(constants.convolution)
    result = np.empty(len(rows))
    for table, places in rows.groupby("table").indices.items():
        result[places] = device_us(rows.iloc[places], str(table), device, constants.memory)
    return result


def on_lanes(gemm: Mapping[str, Members]) -> Mapping[str, Members]:
    """Constants of every family, where only products on lanes were measured: theirs."""
    return {VECTOR_BATCHED: gemm[VECTOR], MATRIX: gemm[VECTOR], **gemm}


# Constants of the closed forms for folds that leave GPUs out, fitted once and kept by fingerprint.


def retained_forms(rows: pd.DataFrame, folder: Path) -> FormConstants:
    """`fit_forms(rows)`, from the folder where the same code fitted the same rows before."""
    numbers = [rows[name].to_numpy() for name in ("latency_us", "flops", "moved_bytes", "calls_before")]
    digest = hashlib.sha256(b"".join(np.nan_to_num(n).tobytes() for n in numbers)).hexdigest()
    names = sorted(rows["device"].unique())
    path = folder / f"forms-{fingerprint(getsource(fit_forms), VERSION, digest, names, len(rows))}.json"
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
        gaps = {name: bound.EventGap(**gap) for name, gap in memory["gaps"].items()}
        systems = {name: bound.MemorySystem(**system) for name, system in memory["systems"].items()}
        rows_of = {name: _kernels(rows) for name, rows in memory["rows_of"].items()}
        programs = {name: bound.ProgramStreams(**streams) for name, streams in memory["programs"].items()}
        given = {"rows": _kernels(memory["rows"]), "gaps": gaps, "systems": systems, "rows_of": rows_of,
                 "programs": programs}  # fmt: skip
        memory = bound.MemoryConstants(**{**memory, **given})
    convolution = raw["convolution"] and ConvolutionConstants(**raw["convolution"])
    return FormConstants(gemm, memory, convolution, tuple(raw["devices"]))


def _kernels(raw: Mapping[str, Mapping[str, float]]) -> dict[str, bound.RowKernel]:
    return {name: bound.RowKernel(**kernel) for name, kernel in raw.items()}
