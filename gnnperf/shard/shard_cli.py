"""`gnnperf shard TABLES --devices N --hardware NAME`."""

import argparse
from pathlib import Path
from typing import Any

from gnnperf.core import Subparsers, add_command, print_result, require, require_writable

DESCRIPTION = """\
Where to put the embedding tables of a recommendation model: placements ranked by the predicted step.

TABLES is a recommendation model of conf/plan, or a .yaml file in the same form:

  model:
    tables:                     float32; pooling: indices per sample, summed
      - {name: users, rows: 40000000, dim: 64, pooling: 1}
      - {name: clicks, rows: 500000, dim: 64, pooling: 20, skew: 3}       index = rows u^skew: 1 is uniform
      - {name: small, count: 30, rows: 2000, dim: 64}                     thirty tables
    bottom: [512, 64]           widths of the perceptrons; the last of `bottom` is the tables' dim
    top: [512, 256, 1]
    optimizer: rowwise_adagrad  of tables, fused with their backward pass
  batch: 65536                  of a step, over all devices

A `placement` in it, for as many ranks, is compared with. Tables may be held whole, by rows, by columns, or replicated;
memory holds parameters, optimizer state, and gradients of what is replicated.
"""
EXAMPLES = """\
gnnperf shard dlrm_criteo --devices 8 --gpu a100_sxm_80gb
gnnperf shard mine.yaml --devices 64 --gpu h100_sxm --cluster hgx8 --out best.yaml
gnnperf predict --plan best.yaml --gpu h100_sxm                    the whole step of the best one
"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add `shard`."""
    short = "where to put embedding tables of a recommendation model"
    parser = add_command(subparsers, "shard", short, DESCRIPTION, EXAMPLES, _shard)
    parser.add_argument("tables", metavar="TABLES", help="a recommendation model of conf/plan, or a .yaml file")
    parser.add_argument("--devices", required=True, type=int, metavar="N", help="ranks, one device each")
    parser.add_argument("--gpu", "--hardware", dest="hardware", required=True, metavar="NAME",
                        help="one of `gnnperf devices`, or a .yaml file")  # fmt: skip
    parser.add_argument("--cluster", metavar="NAME", help="its links and hosts (default: the device's)")
    parser.add_argument("--top", type=int, default=3, metavar="K", help="placements to print (default: %(default)s)")
    parser.add_argument("--reserve", type=float, default=0.15, metavar="SHARE",
                        help="share of a device's memory that tables do not get (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of random numbers (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the plan with the best placement: a .yaml file")


def _shard(arguments: argparse.Namespace) -> None:
    from gnnperf.hardware import PLAN_GROUP, SUFFIXES, path_of, read_yaml
    from gnnperf.shard.placement_search import Effort
    from gnnperf.shard.problem import given_placement, problem_from, write_plan
    from gnnperf.shard.shard_result import document, ranked_placements, text

    require(arguments.top >= 1, "--top", arguments.top, "a whole number from 1 up")
    if arguments.out is not None:
        require_writable(arguments.out, SUFFIXES)
    path = path_of(arguments.tables, PLAN_GROUP)
    raw: dict[str, Any] = read_yaml(path)
    problem = problem_from(raw, str(path), arguments.devices, arguments.hardware, arguments.cluster, arguments.reserve)
    given = given_placement(raw, str(path), arguments.devices)
    result = ranked_placements(problem, Effort(seed=arguments.seed), given, arguments.top)
    if arguments.out is not None:
        write_plan(raw, result.ranked[0].placement, problem, arguments.out)
    print_result(arguments, lambda: document(result), lambda: text(result))
