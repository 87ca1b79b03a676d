"""Fit the shipped constants of matrix products, conf/analytic/gemm.yaml, on all GPUs that have public tables.

    GNNPERF_DATA_MIRROR=FOLDER python -m benchmarks.fit_gemm

`python -m benchmarks.gemm` judges such constants on GPUs that they were not fitted on. These are fitted on all of them:
do not judge them on these tables.
"""

from __future__ import annotations

from benchmarks._products import TABLES, product_rows, sample
from benchmarks._public_runs import mirror
from benchmarks.gemm import TRAINING_ROWS
from gnnperf.analytic.gemm_fit import fit_for_others
from gnnperf.analytic.kernel_constants import save_gemm_constants
from gnnperf.hardware.conf_dir import conf_dir

FAMILY = {"gemm": "matrix", "bmm": "vector_batched", "linear": "vector"}


def main() -> None:
    """Fit and write."""
    rows = product_rows(mirror())
    samples = {table: sample(rows[rows["table"] == table], TRAINING_ROWS) for table in TABLES}
    constants = {FAMILY[table]: fit_for_others(part) for table, part in samples.items()}
    sources = "; ".join(
        f"{FAMILY[table]}: {part['source'].iloc[0]}, {table}, {len(part)} rows of {', '.join(part['device'].unique())}"
        for table, part in samples.items()
    )
    save_gemm_constants(constants, f"Fitted by benchmarks/fit_gemm.py. {sources}.", conf_dir("analytic") / "gemm.yaml")


if __name__ == "__main__":
    main()
