"""Write the laws that ship: `python -m research.fitting.collectives conf/analytic/collective_laws`.

One YAML file per platform of the public collective tables, the newest library of each device. All rows are used: do not
judge the laws on these tables; what fits on a part of the rows are off by on the others is in each file's provenance.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gnnperf.analytic import save_collectives
from gnnperf.predict.collective_fit import fit_and_judge
from research.benchmarks._collective_answers import cluster_of
from research.benchmarks._public_runs import mirror
from research.tables.collective_sources import AICONFIGURATOR, ESTIMATE_TRAIN_TIME, VIDUR, VTRAIN, read_collectives

LICENSES = {AICONFIGURATOR: "Apache-2.0", ESTIMATE_TRAIN_TIME: "MIT", VIDUR: "MIT", VTRAIN: "MIT"}
SHIPPED = {
    "a100_sxm_nccl_2_27": (AICONFIGURATOR, "a100_sxm nccl 2.27.3"),
    "h100_sxm_nccl_2_29": (AICONFIGURATOR, "h100_sxm nccl 2.29.2"),
    "h200_nccl_2_29": (AICONFIGURATOR, "h200_sxm nccl 2.29.2"),
    "gb200_nccl_2_29": (AICONFIGURATOR, "gb200 nccl 2.29.2"),
    "l40s_nccl_2_27": (AICONFIGURATOR, "l40s nccl 2.27.3"),
    "perlmutter": (ESTIMATE_TRAIN_TIME, "perlmutter"),
    "a100_vtrain": (VTRAIN, "a100"),
    "v100_vtrain": (VTRAIN, "v100"),
    "a100_dgx_vidur": (VIDUR, "a100_dgx"),
    "a100_pairs_vidur": (VIDUR, "a100_pairwise_nvlink"),
    "h100_pairs_vidur": (VIDUR, "h100_pairwise_nvlink"),
}


def main(folder: Path) -> None:
    """Fit, judge and write."""
    folder.mkdir(parents=True, exist_ok=True)
    platforms = dict(iter(read_collectives(mirror()).rows.groupby(["source", "platform"])))
    for name, key in SHIPPED.items():
        rows, cluster = platforms[key], cluster_of(platforms[key])
        source, platform = key
        origin = (f"python -m research.fitting.collectives: {source} ({LICENSES[source]}), {platform}, "
                  f"links of cluster {cluster.name}")  # fmt: skip
        result = fit_and_judge(rows, cluster, origin)
        save_collectives(result.constants, folder / f"{name}.yaml")
        print(f"{name}: {result.num_rows} rows; {'; '.join(map(str, result.held_out))}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m research.fitting.collectives FOLDER")
    main(Path(sys.argv[1]))
