"""Fit the shipped constants of matrix products, conf/analytic/gemm.yaml, on all GPUs that have public tables.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.fit_gemm [gemm] [bmm] [linear]

Families of tables that are not named keep the constants that they have, and where those come from.
`python -m research.benchmarks.gemm` judges such constants on GPUs that they were not fitted on. These are fitted on
all of them:
do not judge them on these tables. No row of a whole model or of its nodes is among them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gnnperf.analytic.gemm_fit import fit_for_others
from gnnperf.analytic.kernel_constants import load_gemm_constants, save_gemm_constants
from gnnperf.hardware.conf_folders import conf_dir
from gnnperf.hardware.strict_yaml import read_yaml
from research.benchmarks._products import TABLES, product_rows, sample
from research.benchmarks._public_runs import mirror

FITTED_BY = "Fitted by research/benchmarks/fit_gemm.py."
FIT_ROWS = {"gemm": 300, "bmm": 500, "linear": 500}  # of each GPU
FAMILY = {"gemm": "matrix", "bmm": "vector_batched", "linear": "vector"}


def main(asked: Sequence[str]) -> int:
    """Fit and write."""
    unknown = sorted(set(asked) - set(TABLES))
    if unknown:
        sys.exit(f"no table {unknown[0]!r}. Allowed: {', '.join(TABLES)}.")
    path = conf_dir("analytic") / "gemm.yaml"
    rows = product_rows(mirror())
    constants, sources = dict(load_gemm_constants(path)), sources_of(path)
    for table in asked or TABLES:
        part = sample(rows[rows["table"] == table], FIT_ROWS[table])
        constants[FAMILY[table]] = fit_for_others(part)
        sources[FAMILY[table]] = f"{part['source'].iloc[0]}, {table}, {len(part)} rows of " + ", ".join(
            part["device"].unique()
        )
    said = "; ".join(f"{family}: {source}" for family, source in sources.items())
    save_gemm_constants(constants, f"{FITTED_BY} {said}.", path)
    return 0


def sources_of(path: Path) -> dict[str, str]:
    """Family -> where its constants come from, as the file says."""
    said = str(read_yaml(path)["provenance"]).removeprefix(FITTED_BY).strip().removesuffix(".")
    parts = (part.partition(": ") for part in said.split("; "))
    return {family: source for family, _, source in parts}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
