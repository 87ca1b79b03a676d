"""Fit the collective models of a platform, and print their errors on held-out rows.

    python -m research.fitting.collectives conf/analytic/collective_models        (those that ship)
    python -m research.fitting.collectives ops.parquet --cluster NAME [--hardware NAME] --out FILE.yaml

Shipped: one file per platform of the public tables, the newest library of each device. All rows are used: do not judge
the models on these tables; the errors of fits on a part of the rows are in each file's provenance.

Your own: the ops.parquet of `gnnperf calibrate`, or a .csv or .parquet file with the columns kind, message_bytes (of
one rank's input), group_size, nodes, link and latency_us. `collectives=mine.yaml` of predict.py takes the result.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from gnnperf.hardware import ClusterSpec, load_cluster, load_device
from research.benchmarks._frame import parser_of, run_main
from research.benchmarks._public_runs import mirror
from research.fitting.collective_fit import fit_and_judge
from research.fitting.files import save_collectives
from research.tables.collective_sources import AICONFIGURATOR, ESTIMATE_TRAIN_TIME, VIDUR, VTRAIN, read_collectives
from research.tables.collective_tables import one_platform, read_collective_table

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


def ship(folder: Path) -> None:
    """Fit, judge and write what ships."""
    folder.mkdir(parents=True, exist_ok=True)
    platforms = dict(iter(read_collectives(mirror()).rows.groupby(["source", "platform"])))
    for name, (source, platform) in SHIPPED.items():
        rows = platforms[source, platform]
        origin = f"python -m research.fitting.collectives: {source} ({LICENSES[source]}), {platform}"
        _fit(rows, cluster_of(rows), origin, folder / f"{name}.yaml")


def _fit(rows: pd.DataFrame, cluster: ClusterSpec, origin: str, out: Path) -> None:
    result = fit_and_judge(rows, cluster, f"{origin}, links of cluster {cluster.name}")
    save_collectives(result.constants, out)
    print(
        f"{out.stem}: {result.num_rows} rows; {'; '.join(map(str, result.held_out)) or 'nothing held out'}", flush=True
    )


def main(arguments: Sequence[str]) -> None:
    """Fit one table, or all that ship."""
    parser = parser_of(__doc__)
    parser.add_argument("table", type=Path, help="measured collectives, or the folder of the models that ship")
    parser.add_argument("--cluster", help="where they were measured: a cluster of the catalog, or a .yaml file")
    parser.add_argument("--hardware", help="its device: of the catalog, or a .yaml file; default: the cluster's own")
    parser.add_argument("--out", type=Path, help="the file to write")
    given = parser.parse_args(arguments)
    if given.table.is_dir():
        ship(given.table)
        return
    if given.cluster is None or given.out is None:
        parser.error("a table needs --cluster and --out")
    device = None if given.hardware is None else load_device(given.hardware)
    rows = one_platform(read_collective_table(given.table).rows, str(given.table))
    _fit(
        rows,
        load_cluster(given.cluster, device),
        f"python -m research.fitting.collectives {given.table.name}",
        given.out,
    )


if __name__ == "__main__":
    run_main(main)
