"""`gnnperf search PLAN --gpu NAME --devices N`, and of a trace."""

import argparse
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from gnnperf.core import InputError, Subparsers, add_command, print_result, require, require_writable, write_text

DESCRIPTION = """\
How to divide a transformer over devices: tensor, pipeline, data, expert and context parallelism, micro-batch, ZeRO
stage or FSDP, recomputation, order of pipeline passes and sequence parallelism. The global batch stays as the plan has
it.

Of a trace: the recorded run on other numbers of devices and with other batches of a device. Its replicas grow, and
tensor-parallel ranks divide its layers if it is a data-parallel transformer.

Divisions that do not fit into memory are left out. The others are predicted in the order of a lower bound of their
step, until no bound is below the best step.
"""
EXAMPLES = """\
gnnperf search llama3_70b_fsdp --gpu h100_sxm --devices 64
gnnperf search llama3_70b_fsdp --gpu h100_sxm --devices 64 --out best.yaml
gnnperf search mine.yaml --gpu a100_sxm_80gb --devices 16,32,64 --by cost --price 2.5
gnnperf predict --plan best.yaml --gpu h100_sxm                  the whole prediction of the best one
gnnperf search runs/trace_dir --gpu h100_sxm --devices 8,16,64   a recorded run on so many of these
gnnperf search runs/trace_dir --devices 16,64 --tensor 1,2,4     its layers divided over tensor-parallel ranks

PLAN is a transformer of conf/plan, or a .yaml file in the same form. Its own parallelism is a baseline where it has as
many devices. All else is a trace.
"""
UNITS = {"GiB": 1 << 30, "GB": 10**9, "MiB": 1 << 20, "MB": 10**6}
SECTIONS = ("parallelism", "sharding", "schedule")


def add_parsers(subparsers: Subparsers) -> None:
    """Add the `search` command."""
    short = "the fastest or cheapest way to divide a plan's model over devices"
    parser = add_command(subparsers, "search", short, DESCRIPTION, EXAMPLES, _search)
    parser.add_argument("plan", metavar="PLAN|TRACE", help="a plan of conf/plan, a .yaml file, or a trace")
    parser.add_argument(
        "--gpu", metavar="NAME", help="one of `gnnperf devices`, or a .yaml file (default: the trace's)"
    )
    parser.add_argument("--devices", required=True, metavar="N", help="how many; a,b,c: one of several numbers")
    parser.add_argument("--cluster", metavar="NAME", help="links and hosts (default: the device's)")
    parser.add_argument("--memory", metavar="SIZE", help="of a device, as in 80GiB (default: the device's)")
    parser.add_argument("--reserve", type=float, default=0.08, metavar="SHARE",
                        help="share of that memory for CUDA and libraries (default: %(default)s)")  # fmt: skip
    parser.add_argument("--by", choices=("step", "tokens_per_s", "cost"), default="step",
                        help="what is best (default: %(default)s); with one number of devices all agree")  # fmt: skip
    parser.add_argument("--price", type=float, metavar="USD", help="of a device for an hour; gives the cost")
    parser.add_argument("--batches", metavar="X,X",
                        help="of a trace: batches over the recorded one (default: 1,2,4)")  # fmt: skip
    parser.add_argument("--tensor", metavar="T,T",
                        help="of a trace: ranks that divide its layers (default: 1)")  # fmt: skip
    parser.add_argument("--data-parallel", type=int, metavar="N",
                        help="of a trace that does not show it: ranks of a data-parallel group; 1: none")  # fmt: skip
    parser.add_argument("--context", metavar="C,C", help="of a plan: ranks that divide the sequence (default: those "
                        "that leave each one 8192 positions or more)")  # fmt: skip
    parser.add_argument("--top", type=int, default=10, metavar="K", help="plans to print (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of random plans to compare with (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the best plan: a .yaml file")


def _search(args: argparse.Namespace) -> None:
    from gnnperf import hardware
    from gnnperf.generate import TransformerPlan, read_plan
    from gnnperf.report.search.search_text import WEIGHT_OF, SearchReport, document, text
    from gnnperf.shard import Effort, Problem, candidates, search_plans

    require(args.top >= 1, "--top", args.top, "a whole number from 1 up")
    require(0 <= args.reserve < 1, "--reserve", args.reserve, "0 to 1")
    require(args.price is None or args.price >= 0, "--price", args.price, "0 or more")
    if Path(args.plan).exists() and Path(args.plan).suffix not in hardware.SUFFIXES:
        _search_trace(args)
        return
    for option in ("batches", "tensor", "data_parallel"):
        given = getattr(args, option)
        require(given is None, f"--{option.replace('_', '-')}", given, "nothing with a plan: it is of a trace")
    require(args.gpu is not None, "--gpu", args.gpu, "a device of the catalog, for a plan")
    if args.out is not None:
        require_writable(args.out, hardware.SUFFIXES)
    path = hardware.path_of(args.plan, hardware.PLAN_GROUP)
    raw: dict[str, Any] = hardware.read_yaml(path)
    plan = read_plan(raw, str(path))
    if not isinstance(plan, TransformerPlan):
        raise InputError("is no transformer", where=str(path), allowed="a plan with model.layers",
                         remedy="gnnperf shard places the tables of recommendation models")  # fmt: skip
    device = hardware.load_device(args.gpu)
    if device.kind != "gpu":
        raise InputError(f"is a {device.kind}", where=f"--gpu {args.gpu}", allowed="a GPU")
    named = args.cluster is not None
    cluster = hardware.load_cluster(args.cluster, device) if named else hardware.default_cluster(device)
    memory = _bytes(args.memory) if args.memory else cluster.device.memory_bytes
    devices = _whole(args.devices, "--devices")
    contexts = None if args.context is None else _whole(args.context, "--context")
    plans, capacity = candidates(plan, devices, contexts), memory * (1.0 - args.reserve)
    problem = Problem(plans, partial(hardware.spread, cluster), capacity, WEIGHT_OF[args.by])
    baseline = plan if plan.parallelism.world_size in devices else None  # else there is nothing to compare
    outcome = search_plans(problem, Effort(seed=args.seed), baseline)
    search = SearchReport(outcome, plan, cluster, devices, problem.capacity_bytes, args.by, args.price, args.top)
    if args.out is not None:
        _write(raw, outcome.options[0].plan, args.out)
    print_result(args, lambda: document(search), lambda: text(search))


def _search_trace(args: argparse.Namespace) -> None:
    from gnnperf.predict import Request, composed
    from gnnperf.report.search.trace import TraceSettings, document, lines, search_trace

    require(args.out is None, "--out", args.out, "nothing with a trace: there is no plan to write")
    require(args.context is None, "--context", args.context, "nothing with a trace: it is of a plan")
    hardware = {"hardware": args.gpu, "cluster": args.cluster}
    chosen = [f"{key}={value}" for key, value in hardware.items() if value is not None]
    price = {} if args.price is None else {"price.usd_per_gpu_hour": args.price}
    request = composed("predict", Request, *chosen, "findings=false", trace=args.plan, **price)
    memory = _bytes(args.memory) if args.memory else None
    written = args.batches or "1,2,4"
    batches = _numbers(written, "--batches", r"[0-9]{1,6}(\.[0-9]{1,6})?", "numbers above 0, as 0.5,1")
    tensor = _whole(args.tensor or "1", "--tensor")
    settings = TraceSettings(_whole(args.devices, "--devices"), batches, tensor, args.data_parallel)
    result = search_trace(request, settings, args.by, args.reserve, memory)
    print_result(args, lambda: document(result), lambda: "\n".join(lines(result, args.top)))


def _numbers(written: str, option: str, form: str, allowed: str) -> tuple[float, ...]:
    """Different ones, apart by commas, each above 0."""
    numbers = written.split(",")
    if not all(re.fullmatch(form, number) and float(number) > 0 for number in numbers):
        raise InputError(f"bad value {written!r}", where=option, allowed=allowed)
    return tuple(dict.fromkeys(map(float, numbers)))


def _whole(written: str, option: str) -> tuple[int, ...]:
    return tuple(map(int, _numbers(written, option, "[0-9]{1,6}", "whole numbers from 1 up, as 8 or 16,32,64")))


def _bytes(written: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGTi]*B)", written)
    if match is None or match[2] not in UNITS or float(match[1]) <= 0:
        raise InputError(
            f"bad value {written!r}", where="--memory", allowed=f"a number and {', '.join(UNITS)}, as 80GiB"
        )
    return float(match[1]) * UNITS[match[2]]


def _write(raw: Mapping[str, Any], plan: Any, out: Path) -> None:
    """The file's plan with the best division, whole or not at all; values are those of the file's own form."""
    from gnnperf.hardware import yaml_text

    settings = {name: msgspec.to_builtins(getattr(plan, name)) for name in SECTIONS}
    first = {key: value for key, value in raw.items() if key not in (*SECTIONS, "source")}
    write_text(out, yaml_text({**first, **settings, **({"source": raw["source"]} if "source" in raw else {})}))
