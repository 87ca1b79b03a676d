"""Write the laws that ship: `python -m research.fitting.collectives conf/analytic/collective_laws`.

One YAML file per platform of the public collective tables, the newest library of each device. All rows are used: do not
judge the laws on these tables; what fits on a part of the rows are off by on the others is in each file's provenance.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from gnnperf.analytic import save_collectives
from gnnperf.hardware import ClusterSpec, load_cluster
from gnnperf.predict.collective_fit import fit_and_judge
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
# (first part of a platform's name, link) -> cluster of the catalog. What the catalog lacks has no specification.
CLUSTERS = {
    ("a100_sxm", "nvlink"): "dgx_a100", ("a100", "nvlink"): "dgx_a100", ("a100_dgx", "nvlink"): "dgx_a100",
    ("a100_dgx", "network"): "dgx_a100", ("a100_pairwise_nvlink", "pcie"): "pcie_gen4_8",
    ("a100_pairwise_nvlink", "network"): "pcie_gen4_8", ("gb200", "nvlink"): "gb200_nvl72",
    ("h100_sxm", "nvlink"): "hgx_h100", ("h200_sxm", "nvlink"): "hgx_h100",
    ("h100_pairwise_nvlink", "pcie"): "pcie_gen5_8", ("l40s", "pcie"): "pcie_gen4_8",
    ("perlmutter", "nvlink"): "perlmutter_a100", ("perlmutter", "network"): "perlmutter_a100",
    ("v100", "nvlink_mesh"): "dgx1_v100",
}  # fmt: skip
LIKE_THE_REST = "pcie_gen4_8"  # A40 pairs


def cluster_of(rows: pd.DataFrame) -> ClusterSpec:
    """The catalog's cluster of the rows' platform; of one that the catalog lacks, a server with the same bus."""
    names = (CLUSTERS.get((str(platform).partition(" ")[0], str(link)))
             for platform, link in rows[["platform", "link"]].drop_duplicates().itertuples(index=False))  # fmt: skip
    return load_cluster(next((name for name in names if name is not None), LIKE_THE_REST))


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
