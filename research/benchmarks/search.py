"""`gnnperf search` against judging every candidate, and its picks against 1,440 labeled configurations.

    python -m research.benchmarks search --spaces                              20 small spaces, exhaustively
    python -m research.benchmarks search --large                               64 GPUs: seconds, candidates per second
    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks search --vtrain   the pick's label against the best label

Without an option, all of them. vTrain's labels (see `vtrain`) are read after the searches; no label is known to them.
The global batch is part of what a search is given, so that its candidates are the configurations of one model, number
of GPUs and global batch. docs/benchmarks/plans.md has the limit that the labels' own uncertainty sets.
"""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from gnnperf.core import InputError
from gnnperf.generate import Parallelism, Schedule, TransformerPlan, read_plan
from gnnperf.generate.transformer.block import Activation, Attention, Block, Experts, Norm, Positions
from gnnperf.generate.transformer.plan import Transformer
from gnnperf.hardware import ANY_DEVICE, PLAN_GROUP, ClusterSpec, default_cluster, load_device, path_of, read_yaml
from gnnperf.shard import Effort, Problem, candidates, search_plans
from gnnperf.shard.parallelism.bound import judged, peak_bytes
from gnnperf.shard.parallelism.search import RULE
from research.benchmarks._frame import right_aligned, run_main, show
from research.benchmarks._public_runs import mirror
from research.benchmarks._results import save_result
from research.benchmarks.vtrain import DEVICE, LAWS, columns_of, configurations, iteration_us

ALL = Effort(judged=10**6, layer_passes=10**12, runners=0)
MOST_CANDIDATES = 60  # of a space: every n-th one, so that all can be judged
GIB = float(1 << 30)
LLAMA = Block(Attention.FLASH, 8, Norm.RMS, Activation.SWIGLU, None, Positions.ROTARY, bias=False, dropout=False,
              tied_embedding=False)  # fmt: skip
BLOCKS = {"gpt": (Block(), None), "llama": (LLAMA, None), "experts": (LLAMA, Experts(8))}
SPACES = (  # block, hidden, devices, ranks per machine, device, GiB
    ("gpt", 1024, 4, 8, "a100_sxm_80gb", 80), ("gpt", 2048, 8, 8, "a100_sxm_80gb", 12),
    ("gpt", 4096, 16, 8, "a100_sxm_80gb", 40), ("gpt", 1024, 8, 4, "h100_sxm", 6),
    ("gpt", 4096, 8, 4, "h100_sxm", 80), ("gpt", 2048, 4, 2, "v100_sxm2_32gb", 16),
    ("gpt", 4096, 32, 8, "h100_sxm", 40), ("llama", 1024, 4, 8, "h100_sxm", 80),
    ("llama", 2048, 8, 8, "h100_sxm", 10), ("llama", 4096, 16, 8, "h100_sxm", 24),
    ("llama", 4096, 8, 8, "a100_sxm_80gb", 80), ("llama", 2048, 16, 4, "a100_sxm_80gb", 8),
    ("llama", 1024, 8, 2, "h200", 80), ("llama", 4096, 32, 8, "h200", 20),
    ("llama", 2048, 4, 4, "b200", 80), ("experts", 1024, 4, 8, "h100_sxm", 80),
    ("experts", 2048, 8, 8, "h100_sxm", 30), ("experts", 2048, 16, 8, "a100_sxm_80gb", 20),
    ("experts", 4096, 16, 8, "h100_sxm", 80), ("experts", 1024, 8, 4, "a100_sxm_80gb", 8),
)  # fmt: skip


Pick = tuple[tuple[object, ...], int, int]  # (model, GPUs, batch), place of the search's pick, of the rule's; -1: none


def main(argv: list[str]) -> None:
    """Run the parts that are named, or all."""
    parts: dict[str, Callable[[], None]] = {"--spaces": spaces, "--large": large, "--vtrain": vtrain}
    if set(argv) - set(parts):
        raise InputError(f"no part {argv[0]!r}", where="research.benchmarks search", allowed=", ".join(parts))
    for name in argv or parts:
        parts[name]()


def spaces() -> None:
    """Excess of the chosen step over the least of all candidates, and how many graphs that took."""
    printed = right_aligned("20 small spaces", "candidates", "that fit", "judged", "excess %", "proven")
    excess, saved = [], []
    for kind, hidden, devices, per_node, gpu, memory in SPACES:
        cluster = replace(default_cluster(load_device(gpu)), ranks_per_node=per_node)
        every = candidates(_plan(kind, hidden, devices), [devices])
        plans = every[:: math.ceil(len(every) / MOST_CANDIDATES)]
        fitting = [plan for plan in plans if peak_bytes(plan) <= memory * GIB]
        least = min(judged(plan, cluster).step_us for plan in fitting)
        outcome = search_plans(Problem(plans, _always(cluster), memory * GIB), ALL)
        excess.append(100 * (outcome.best / least - 1))
        saved.append(1 - len(outcome.options) / len(fitting))
        printed.add_row(f"{kind} {hidden}, {devices} x {gpu}", str(len(plans)), str(len(fitting)),
                        str(len(outcome.options)), f"{excess[-1]:.2f}", str(outcome.gap == 0.0))  # fmt: skip
        print(f"{len(excess)} of {len(SPACES)} spaces", file=sys.stderr, flush=True)
    show(printed)
    save_result("search_spaces", max(excess))
    print(f"excess over the exhaustive optimum: mean {np.mean(excess):.2f} %, max {max(excess):.2f} %; "
          f"{100 * float(np.mean(saved)):.0f} % of graphs not built")  # fmt: skip


def _plan(kind: str, hidden: int, devices: int) -> TransformerPlan:
    block, experts = BLOCKS[kind]
    model = Transformer(layers=8, hidden=hidden, heads=16, sequence=1024, vocabulary=32000, dtype="bfloat16")
    return TransformerPlan(kind, model, Parallelism(data=devices), Schedule(2 * devices, 1), block, experts)


def _always(cluster: ClusterSpec) -> Callable[[int], ClusterSpec]:
    return lambda count: cluster


def large() -> None:
    """Llama 3 70B on 64 H100, and a mixture of experts: a whole search as the command runs it."""
    cluster = default_cluster(load_device("h100_sxm"))
    printed = right_aligned("64 GPUs", "candidates", "judged", "seconds", "CPU seconds", "candidates/s", "gap %")
    for name in ("llama3_70b_fsdp", "mixtral_8x7b"):
        begin, cpu = time.perf_counter(), time.process_time()
        path = path_of(name, PLAN_GROUP)
        plan = read_plan(read_yaml(path), name)
        assert isinstance(plan, TransformerPlan), "chosen so"
        plans = candidates(plan, [64])
        outcome = search_plans(Problem(plans, _always(cluster), 0.92 * 80 * GIB), Effort())
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        printed.add_row(name, str(len(plans)), str(len(outcome.options)), f"{seconds:.1f}", f"{cpu:.1f}",
                        f"{len(plans) / seconds:.0f}", f"{100 * outcome.gap:.1f}")  # fmt: skip
    show(printed)


def vtrain() -> None:
    """Excess of the pick's label over the best label, per model, number of GPUs and global batch."""
    folder = mirror()
    plans = configurations(folder)
    table = columns_of(plans).assign(place=np.arange(len(plans)))
    cluster = replace(default_cluster(load_device(DEVICE)), collectives={ANY_DEVICE: LAWS})
    picked: list[Pick] = []
    groups = table.groupby(GROUP)["place"]
    for number, (key, places) in enumerate(groups, start=1):
        own = [plans[i] for i in places]
        outcome = search_plans(Problem(own, _always(cluster), math.inf), ALL)
        rule = outcome.baselines.get(RULE)
        by_name = {plan.name: i for plan, i in zip(own, places, strict=True)}
        picked.append((tuple(key), by_name[outcome.options[0].plan.name], by_name[rule.plan.name] if rule else -1))
        if number % 20 == 0:
            print(f"{number} of {len(groups)} searches", file=sys.stderr, flush=True)
    _print_picks(table.assign(label_us=iteration_us(folder, plans)), picked)


GROUP, DIVISION = ["hidden", "layers", "gpus", "global_batch"], ["tensor", "pipeline", "data"]


def _print_picks(table: pd.DataFrame, picked: list[Pick]) -> None:
    rows = []
    for key, pick, rule in picked:
        own = table[(table[GROUP] == list(key)).all(axis=1)]
        best, chosen = own.sort_values("label_us").iloc[0], table.loc[pick]
        rows.append({
            **dict(zip(GROUP, key, strict=True)), "candidates": len(own),
            "search": chosen["label_us"] / best["label_us"] - 1,
            "rule": np.nan if rule < 0 else table.loc[rule, "label_us"] / best["label_us"] - 1,
            "random": own["label_us"].mean() / best["label_us"] - 1,
            "family": bool((chosen[DIVISION] == best[DIVISION]).all()),
        })  # fmt: skip
    result = pd.DataFrame(rows)
    printed = right_aligned("excess over the best label, %", "groups", "search mean", "median", "p90", "max",
                            "within 5 %", "right family %", "rule of thumb", "mean candidate")  # fmt: skip
    per_gpus: dict[str, pd.DataFrame] = {f"{gpus} GPUs": part for gpus, part in result.groupby("gpus")}
    for name, part in {"all": result, **per_gpus}.items():
        excess = 100 * part["search"]
        spread = (excess.mean(), excess.median(), excess.quantile(0.9), excess.max())
        printed.add_row(name, str(len(part)), *(f"{value:.1f}" for value in spread),
                        f"{100 * (excess <= 5).mean():.0f} %", f"{100 * part['family'].mean():.0f}",
                        f"{100 * part['rule'].mean():.1f}", f"{100 * part['random'].mean():.1f}")  # fmt: skip
    pairs = result.groupby(["hidden", "layers", "gpus"])["search"].mean()
    save_result("search_vtrain", 100 * float(result["search"].mean()))
    save_result("search_family", 100 * float(result["family"].mean()))
    show(printed)
    within = 100 * float((pairs <= 0.05).mean())
    print(f"per model and number of GPUs, mean over global batches: {len(pairs)} pairs, "
          f"mean {100 * pairs.mean():.1f} %, max {100 * pairs.max():.1f} %, within 5 %: {within:.0f} %")  # fmt: skip


if __name__ == "__main__":
    run_main(main)
