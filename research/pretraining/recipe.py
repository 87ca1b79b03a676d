"""A checkpoint of op tables: op tables -> held-out rows -> where networks answer -> networks of all rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from gnnperf import __version__
from gnnperf.core import say, write_text
from gnnperf.gnn import OpTablesConfig
from gnnperf.hardware import conf_dir
from gnnperf.predict import EntryConfig
from research.pretraining.calls import KIND
from research.pretraining.fit import OTHERS, OWN, OpModel, fit, prepare
from research.pretraining.forms import shipped_forms
from research.pretraining.graphs import grouped
from research.pretraining.held_out import (
    CHOOSES,
    JUDGES,
    NONE,
    HeldOut,
    choose,
    judged_generations,
    of_kind,
    own_share,
    unseen_generations,
    unseen_sizes,
)
from research.pretraining.op_checkpoint import KindAnswer, OpCheckpoint, op_network, save_op_checkpoint
from research.pretraining.rows import kind_names, read_sources, sampled, sources, spec_of, usable
from research.tables import OpTable

# MODEL_CARD.md of a checkpoint of op tables: everything in it is read from the checkpoint.

FILE = "MODEL_CARD.md"
INTRODUCTION = """\
# Model card of a checkpoint of op tables

Written by `python train.py experiment=pretrained`, with the weights; every number is from that run.

Two typed networks (gnnperf.gnn.models.gnn, one round of messages) can correct the analytical model's answers for
single ops
on NVIDIA GPUs, in log space: one for the GPUs that it was trained on, one for GPUs outside of training. `predict.py`
takes it as `checkpoint=`. Host segments, copies, collectives, CPUs and every op that is not
listed keep the analytical model's answer.
"""
NOT_FOR = """\
## What it must not be used for

- Judging gnnperf, or anything else, on rows of the tables below: it was trained on them.
- Ranking GPUs for a purchase without a measurement: errors on GPUs outside of training are below, and a network that
  knows seven generations does not know the eighth.
- CPUs, AMD GPUs, ops, dtypes and layouts that are not listed: it does not answer there. Where TF32 is on, convolutions
  keep the closed form.
- Sizes far beyond the tables': a correction stays what it was at the edge.
- Safety margins: no interval was calibrated for it.
"""

NOWHERE = """\
No kind of op is kept: no share of the corrections improved held-out generations by 2 %. The closed forms,
whose constants are fitted on the same tables, answer; the networks are what training on recorded runs can start from
(`init_from`).
"""


def card(checkpoint: OpCheckpoint) -> str:
    given = checkpoint.provenance
    parts = [
        INTRODUCTION,
        "## Where it answers\n\nShare: of the correction that is kept; 0: the closed form answers.\n",
        _table(["op", "GPUs that trained", "share there", "share on other GPUs"], map(_answer, checkpoint.answers)),
        *([] if any(one.own_share > 0 or one.others_share > 0 for one in checkpoint.answers) else [NOWHERE]),
        "## Sources\n",
        _table(["repository", "license", "files", "commits"], map(_source, given["sources"])),
        "Rows that trained:\n",
        _table(["op", "GPU", "rows"], ((r["kind"], r["device"], f"{r['rows']:,}") for r in given["rows"])),
        f"Words for ops: {', '.join(given['ops']['own'])}. Calls of traces are identified by their sizes, whatever op "
        "multiplied.\n\nLeft out: " + "; ".join(f"{why}: {n:,}" for why, n in given["left_out"].items()) + ".\n",
        "## Errors on sizes outside of training\n\nGPUs that trained, weights (n, k; channels and window) that did "
        "not: a fifth of them chose the shares, another fifth is judged here. Mean absolute error of the latency as "
        "the table's method reads it, in % (median, p90, largest). A kind is kept only where generations that were "
        "held out confirm it: what sizes of the same table say may be true of that campaign alone.\n",
        _errors(given["sizes"]),
        "## Errors on generations outside of training\n\nConstants of the closed forms and network without the "
        "generation; its share is what the other generations choose. Kept: of the kind, on GPUs outside of training.\n",
        _errors(given["generations"]),
        NOT_FOR,
        "## Versions\n\n" + ", ".join(f"{name} {version}" for name, version in
                                      {"gnnperf": given["gnnperf"], **given["libraries"]}.items())
        + f"; seed {given['seed']}.\n",
    ]  # fmt: skip
    return "\n".join(parts)


def _answer(one: Any) -> tuple[str, ...]:
    return one.kind, ", ".join(one.devices) or "none", f"{one.own_share:g}", f"{one.others_share:g}"


def _source(source: Mapping[str, Any]) -> tuple[str, ...]:
    commits = ", ".join(commit[:10] for commit in source["commits"]) or "unknown"
    return source["repo"], source["license"], str(source["files"]), commits


def _errors(lines: Sequence[Mapping[str, Any]]) -> str:
    header = ["op", "GPU", "rows", "closed form", "network", "share", "kept"]
    own = ((r["kind"], r["device"], str(r["rows"]), _four(r, "forms"), _four(r, "network"), f"{r['share']:g}",
            "yes" if r["kept"] else "no") for r in lines)  # fmt: skip
    table = pd.DataFrame(lines)
    means = table.groupby("kind", sort=False)[["forms mean", "network mean"]].mean() * 100
    summary = "; ".join(f"{kind}: {row.iloc[0]:.1f} -> {row.iloc[1]:.1f} %" for kind, row in means.iterrows())
    return _table(header, own) + f"\nMeans over GPUs, closed form -> network: {summary}.\n"


def _four(row: Mapping[str, Any], who: str) -> str:
    mean, *rest = (100 * row[f"{who} {what}"] for what in ("mean", "median", "p90", "max"))
    return f"{mean:.1f} ({', '.join(f'{number:.1f}' for number in rest)})"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(records)} |" for records in lines) + "\n"


CONSTANTS = ("gemm.yaml", "memory_bound.yaml", "convolution.yaml")
LIBRARIES = ("torch", "torch-geometric", "numpy", "pandas")
FORMS_ROWS = 2000  # of each device and table, for constants that are fitted without a generation


def train(config: EntryConfig) -> None:
    """Write a checkpoint of op tables, and its card, into `config.out` (train.py experiment=pretrained)."""
    out = Path(config.out)
    checkpoint = save_op_checkpoint(out / "checkpoint.pt", trained_checkpoint(config.pretrain, config.seed))
    write_text(out / FILE, card(checkpoint))
    say(f"{out / 'checkpoint.pt'}  sha256 {checkpoint.sha256}")


def trained_checkpoint(config: OpTablesConfig, seed: int) -> OpCheckpoint:
    """Train both networks, and choose where they are used."""
    licensed = sources()
    table = usable(read_sources(Path(config.mirror)))
    rows = of_kinds(table, config.own.rows_per_group)
    every = table.rows.iloc[sampled(table.rows, FORMS_ROWS, ["device", "table"], seed=0)].reset_index(drop=True)

    sizes = unseen_sizes(rows, config.own, seed)
    generations = unseen_generations(rows, every, config.others, seed, Path(config.keep))
    answers = choose(sizes[CHOOSES], generations)

    own = fit(prepare(rows, shipped_forms(), config.own), OWN, config.own, seed)
    others = fit(prepare(rows, shipped_forms(), config.others), OTHERS, config.others, seed)
    provenance = {
        "gnnperf": __version__,
        "libraries": {name: version(name) for name in LIBRARIES},
        "seed": seed,
        "constants_sha256": constants_sha256(),
        "training": {"own": asdict(config.own), "others": asdict(config.others)},
        "sources": [asdict(source) for source in licensed],
        "left_out": dict(table.dropped),
        "rows": counted(rows),
        "ops": {"own": words(own), "others": words(others)},
        "sizes": judged_sizes(sizes, answers),
        "generations": judged_others(generations, answers),
    }
    return OpCheckpoint(op_network(own, config.own.model), op_network(others, config.others.model), answers, provenance)


def constants_sha256() -> dict[str, str]:
    """File of conf/analytic -> its hash: networks correct answers of these constants, and of no others."""
    return {name: hashlib.sha256((conf_dir("analytic") / name).read_bytes()).hexdigest() for name in CONSTANTS}


def of_kinds(table: OpTable, per_group: int) -> pd.DataFrame:
    """Rows of KINDS with their column `kind`, at most so many of each device and kind."""
    kinded = table.rows.assign(**{KIND: kind_names(table.rows)})
    kinded = kinded[kinded[KIND] != ""].reset_index(drop=True)
    return kinded.iloc[sampled(kinded, per_group, ["device", KIND], seed=0)].reset_index(drop=True)


def counted(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """How many rows of which kind and device train."""
    return [
        {"kind": kind, "device": spec_of(device).name, "source": source, "rows": len(places)}
        for (kind, device, source), places in grouped(rows, [KIND, "device", "source"])
    ]


def words(model: OpModel) -> list[str]:
    return list(model.prepared.vocabulary.words["compute"]["op_name"])


def judged_sizes(result: Mapping[int, Sequence[HeldOut]], answers: Sequence[KindAnswer]) -> list[dict[str, Any]]:
    """Errors of the share that sizes choose for a kind, and whether it is kept there."""
    of = {one.kind: one for one in answers}
    share = {kind: own_share(of_kind(result[CHOOSES], kind)) for kind in of}
    return [{**line(one, share[one.kind]), "kept": one.device in of[one.kind].devices} for one in result[JUDGES]]


def judged_others(result: Sequence[HeldOut], answers: Sequence[KindAnswer]) -> list[dict[str, Any]]:
    """Errors of the share that all other generations choose, and whether the kind is kept on other GPUs."""
    retained = {one.kind: one.others_share > 0 for one in answers}
    return [{**line(one, share), "kept": retained[one.kind]} for one, share in judged_generations(result)]


def line(result: HeldOut, share: float) -> dict[str, Any]:
    """Errors of the closed form and of the network with a share of its corrections."""
    forms, network = (pd.Series(result.errors[each]) for each in (NONE, share))
    numbers = {f"{name} {what}": float(number) for name, errors in (("forms", forms), ("network", network))
               for what, number in (("mean", errors.mean()), ("median", errors.median()), ("p90", errors.quantile(0.9)),
                                    ("max", errors.max()))}  # fmt: skip
    return {"kind": result.kind, "device": result.device, "generation": result.generation, "rows": len(forms),
            "share": share, **numbers}  # fmt: skip
