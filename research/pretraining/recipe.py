"""A checkpoint of op tables: op tables -> held-out rows -> where networks answer -> networks of all rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
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
from research.pretraining.card import FILE, card
from research.pretraining.choice import NONE, choose, judged_generations, own_share
from research.pretraining.fit import BY_SIZE, OWN, VIEWS, OpModel, fit, prepare
from research.pretraining.forms import shipped_forms
from research.pretraining.graphs import grouped
from research.pretraining.held_out import CHOOSES, JUDGES, HeldOut, of_kind, unseen_generations, unseen_sizes
from research.pretraining.kinds import kind_names
from research.pretraining.op_checkpoint import KindAnswer, OpCheckpoint, op_network, save_op_checkpoint
from research.pretraining.rows import sampled, spec_of, usable
from research.pretraining.sources import read_sources, sources
from research.tables import OpTable

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
    others = fit(prepare(rows, shipped_forms(), config.others), VIEWS[BY_SIZE], config.others, seed)
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
    """Op names that a network knows."""
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
