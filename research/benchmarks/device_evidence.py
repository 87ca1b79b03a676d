"""Which measurements of which device the shipped constants were made of: writes conf/analytic/evidence.yaml.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.device_evidence

Counts the rows that research/fitting/gemm.py, memory.py, convolution.py, cdna.py and cpu_constants.py fit on, as they
choose them. `gnnperf devices` reads the file.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pandas as pd

from gnnperf.analytic.device_evidence import EVIDENCE_FILE, Evidence
from gnnperf.analytic.roofline import CDNA_FILE
from gnnperf.gnn.data.recordings import CARD
from gnnperf.hardware import conf_dir
from gnnperf.trace.public.catalog import load_catalog
from research.benchmarks._frame import run_main
from research.benchmarks._op_tables import TABLES, convolution_rows, memory_rows, product_rows, sample
from research.benchmarks._public_runs import mirror
from research.fitting.cdna import measured as recorded_calls
from research.fitting.cdna import measured_nodes
from research.fitting.convolution import ROWS_PER_DEVICE
from research.fitting.files import save_evidence
from research.fitting.gemm import FIT_ROWS, GENERATION_ROWS
from research.tables import grouped, spec_of

PROVENANCE = (
    "python -m research.benchmarks.device_evidence: rows that research/fitting/gemm.py, "
    "memory.py, convolution.py, cdna.py "
    "and cpu_constants.py fit on; licenses are those of the catalog of public files"
)
OWN_LICENSE = "Apache-2.0"
CPU, DATA_SETS = "cpu_generic", Path("datasets")
RECORDED, OP_TABLES = "cpu-gloo", ("cpu-ops", "cpu-lookups", "cpu-updates")
ROW_OPS = {"softmax": "softmax", "ln": "layer norm"}


def main() -> None:
    save_evidence(gpu_evidence() + cpu_evidence(), PROVENANCE, conf_dir("analytic") / EVIDENCE_FILE)


def gpu_evidence() -> list[Evidence]:
    """Of products, of kernels bound by memory and of convolutions, from the mirror's op tables."""
    rows = product_rows(mirror())
    result: list[Evidence] = []
    for table in TABLES:
        every = rows[rows["table"] == table]
        fitted = sample(every, GENERATION_ROWS if table.startswith("gemm") else FIT_ROWS[table])
        result += _counted(every, fitted, pd.Series(table, every.index), "gemm.yaml")
    memory, _ = memory_rows()
    result += _counted(memory, memory, memory["table"].map(ROW_OPS).fillna("elementwise"), "memory_bound.yaml")
    convolved, _ = convolution_rows()
    ops = pd.Series("convolution", convolved.index)
    return result + _counted(convolved, sample(convolved, ROWS_PER_DEVICE), ops, "convolution.yaml") + cdna_evidence()


def cdna_evidence() -> list[Evidence]:
    """Of the public recordings of AMD's GPUs, and of nodes of models."""
    result = []
    for parts, kind, ops, dtype in ((recorded_calls(), "kineto", "recordings", "any"),
                                    (measured_nodes(), "op-table", "nodes of models", "float32")):  # fmt: skip
        runs = pd.concat(parts, ignore_index=True).groupby(["device", "project"])["run"].nunique()
        result += [Evidence(device, source, license_of(source, kind), ops, dtype, count, count, CDNA_FILE)
                   for (device, source), count in zip(runs.index.tolist(), runs.tolist(), strict=True)]  # fmt: skip
    return result


def cpu_evidence() -> list[Evidence]:
    """Of the shipped recordings and op tables; traces do not name processors, so they count for the generic one."""
    runs = len(list((DATA_SETS / RECORDED).glob(f"*/[0-9]*/{CARD}")))
    steps = Evidence(CPU, f"datasets/{RECORDED}", OWN_LICENSE, "recordings of training steps", "float32", runs, runs,
                     "cpu.yaml")  # fmt: skip
    counts = {name: len(pd.read_parquet(DATA_SETS / name / "ops.parquet", columns=["op"])) for name in OP_TABLES}
    return [steps, *(Evidence(CPU, f"datasets/{name}", OWN_LICENSE, "op calls", "float32", count, count, "cpu.yaml")
                     for name, count in counts.items())]  # fmt: skip


def _counted(every: pd.DataFrame, fitted: pd.DataFrame, ops: pd.Series, constants: str) -> list[Evidence]:
    """One line per device and kind of op."""
    names = {name: spec_of(name).name for name in every["device"].unique()}
    named = every.assign(device=every["device"].map(names), ops=ops)
    used = every.index.isin(fitted.index)  # [rows]
    return [
        Evidence(device, source, license_of(source), op, dtype, len(places), int(used[places].sum()), constants)
        for (device, source, op, dtype), places in grouped(named, ["device", "source", "ops", "dtype"])
    ]


@cache
def license_of(source: str, kind: str = "op-table") -> str:
    """Of a repository's files of one kind; several are joined."""
    result: Iterable[str] = {e.license for e in load_catalog() if e.repo == source and e.kind == kind}
    return ", ".join(sorted(result)) or "unknown"


if __name__ == "__main__":
    run_main(main)
