"""`gnnperf collectives fit TABLE --cluster NAME --out LAWS.yaml`."""

from __future__ import annotations

import argparse
from pathlib import Path

from gnnperf.core import say

DESCRIPTION = """\
Fit the laws of a platform's collectives to a table of its own, and say what they are worth on held-out rows.

  gnnperf calibrate --out calibrated/mine --minutes 10
  gnnperf collectives fit calibrated/mine/ops.parquet --cluster calibrated/mine/cluster.yaml \\
          --hardware calibrated/mine/device.yaml --out mine.yaml
  python predict.py trace=PATH collectives=mine.yaml            or, in a cluster's YAML: `collectives: mine.yaml`

TABLE is the ops.parquet of `gnnperf calibrate`, or a .csv or .parquet file with the columns

  kind           all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv, ...
  message_bytes  of one rank's input (what nccl-tests call size is group_size times that for all_gather)
  group_size     ranks
  nodes          machines the group spans, in equal parts; 1 if there is no such column
  link           the slowest link between the ranks: nvlink, nvlink_mesh, pcie, network, loopback, ...
  latency_us     of one call

The laws hold for the links of --cluster; on links of other rates and latencies they are moved, on another medium the
specification answers. Kinds that the table lacks are answered by specification too.
"""


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `collectives fit`."""
    collectives = subparsers.add_parser("collectives", help="laws of a platform's collectives, from a table")
    actions = collectives.add_subparsers(dest="action", required=True, metavar="ACTION")
    parser = actions.add_parser("fit", help="fit them", description=DESCRIPTION,
                                formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("table", type=Path, metavar="TABLE", help="measured collectives: .parquet or .csv")
    parser.add_argument("--cluster", required=True, metavar="NAME",
                        help="where they were measured: a cluster of the catalog, or a .yaml file")  # fmt: skip
    parser.add_argument("--hardware", metavar="NAME",
                        help="its device: of the catalog, or a .yaml file; default: the cluster's own")  # fmt: skip
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the laws to write, a .yaml file")
    parser.add_argument("--platform", metavar="TEXT", help="which, if the table holds several (its column `platform`)")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier file")
    parser.set_defaults(run=_fit)


def _fit(arguments: argparse.Namespace) -> int:
    from gnnperf.analytic import of_platform, read_collective_table, save_collectives
    from gnnperf.hardware import load_cluster, load_device
    from gnnperf.predict.collective_fit import fit_and_judge

    _check_out(arguments.out, arguments.overwrite)
    device = None if arguments.hardware is None else load_device(arguments.hardware)
    cluster = load_cluster(arguments.cluster, device)
    table = read_collective_table(arguments.table)
    rows = of_platform(table.rows, arguments.platform, str(arguments.table))
    result = fit_and_judge(rows, cluster, f"gnnperf collectives fit {arguments.table.name}, cluster {cluster.name}")
    save_collectives(result.constants, arguments.out)
    for reason, count in table.dropped.items():
        say(f"left out: {count} rows ({reason})")
    for each in result.held_out or ("nothing could be held out: too few sizes and groups",):
        say(each)
    for each in result.held_out:
        if each.collective_models.mean_ape > each.specified.mean_ape:
            say(f"warning: on {each.name} the specification is better: measure more sizes, longer, or keep to it")
    groups, kinds = len(result.constants.groups), len(result.constants.collective_models)
    say(f"{arguments.out}: {groups} groups and {kinds} kinds on a link, from {result.num_rows} rows")
    return 0


def _check_out(out: Path, overwrite: bool) -> None:
    from gnnperf.core import InputError
    from gnnperf.hardware import SUFFIXES

    if out.suffix not in SUFFIXES:
        raise InputError(f"has the suffix {out.suffix!r}", where=f"--out {out}", allowed=", ".join(SUFFIXES))
    if out.exists() and not overwrite:
        raise InputError("is there already", where=f"--out {out}", remedy="name another file, or pass --overwrite")
    if not out.parent.is_dir():
        raise InputError("no such folder", where=f"--out {out.parent}", remedy="make it, or name another file")
