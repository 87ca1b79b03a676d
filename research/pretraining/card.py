"""MODEL_CARD.md of a checkpoint of op tables: everything in it is read from the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from research.pretraining.op_checkpoint import OpCheckpoint

FILE = "MODEL_CARD.md"
INTRODUCTION = """\
# Model card of a checkpoint of op tables

Written by `python train.py experiment=pretrained`, with the weights; every number is from that run.

Two typed networks (gnnperf.gnn.models.gnn, one round of messages) can correct the analytical model's answers for
single ops
on NVIDIA GPUs, in log space: one for the GPUs that it was trained on, one for GPUs that nobody trained on. `predict.py`
takes it as `checkpoint=`. Host segments, copies, collectives, CPUs and every op that is not
listed keep the analytical model's answer.
"""
NOT_FOR = """\
## What it must not be used for

- Judging gnnperf, or anything else, on rows of the tables below: it was trained on them.
- Ranking GPUs for a purchase without a measurement: errors on GPUs that nobody trained on are below, and a network that
  knows seven generations does not know the eighth.
- CPUs, AMD GPUs, ops, dtypes and layouts that are not listed: it does not answer there. Where TF32 is on, convolutions
  keep the closed form.
- Sizes far beyond the tables': a correction stays what it was at the edge.
- Safety margins: no interval was calibrated for it.
"""

NOWHERE = """\
No kind of op is kept: no share of the corrections told generations that were held out better by 2 %. The closed forms,
whose constants are fitted on the same tables, answer; the networks are what training on recorded runs can start from
(`init_from`).
"""


def card(checkpoint: OpCheckpoint) -> str:
    """The text of the card."""
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
        f"Words for ops: {', '.join(given['ops']['own'])}. Calls of traces are told by their sizes, whatever op "
        "multiplied.\n\nLeft out: " + "; ".join(f"{why}: {n:,}" for why, n in given["left_out"].items()) + ".\n",
        "## Errors on sizes that nobody trained on\n\nGPUs that trained, weights (n, k; channels and window) that did "
        "not: a fifth of them chose the shares, another fifth is judged here. Mean absolute error of the latency as "
        "the table's method reads it, in % (median, p90, largest). A kind is kept only where generations that were "
        "held out confirm it: what sizes of the same table say may be true of that campaign alone.\n",
        _errors(given["sizes"]),
        "## Errors on generations that nobody trained on\n\nConstants of the closed forms and network without the "
        "generation; its share is what the other generations choose. Kept: of the kind, on GPUs that nobody trained "
        "on.\n",
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
