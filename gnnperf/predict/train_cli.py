"""`gnnperf train FOLDER`: plain flags for the keys of train.py that training on one's own runs needs.

    gnnperf train my_runs
    gnnperf train my_runs --init runs/model/checkpoint.pt --out runs/mine
    gnnperf train my_runs --source same_runs_elsewhere

Every other key of train.py is `--set KEY=VALUE`.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnperf.core import InputError, Subparsers, add_command, reuse_memory, to_json, use_python_strings, write_out

if TYPE_CHECKING:
    from gnnperf.predict.training import Trained

DESCRIPTION = """\
Train the network on your own recorded runs, and compare it with the analytical model.

FOLDER has one folder per run, or per run and repeat (<run>/<repeat>), as gnnperf record writes them. Without a
splits.json a split is drawn: repeats of a run stay together, and where cards name several programs, whole programs are
left out. The best epoch on the validation runs is kept. The last lines state whether the runs suffice, and which model
to use.
"""
EXAMPLES = """\
gnnperf record --out my_runs/small/1 -- torchrun --nproc-per-node 8 SCRIPT        record some runs first
gnnperf train my_runs                                                             a new network
gnnperf train my_runs --init runs/model/checkpoint.pt --out runs/mine             a trained network goes on
gnnperf train my_runs --source same_runs_elsewhere --out runs/moved               from another machine to this one
gnnperf train my_runs --set trainer.max_epochs=20 --set data.axis=run             any key of train.py
gnnperf predict trace.json.gz --gpu h200 --checkpoint runs/mine/checkpoint.pt     predict with it

--init takes the sizes of the network from the checkpoint, and the settings of experiment=fine_tune. --source names
recordings of the same runs on another machine; its checkpoint is for gnnperf predict --set transfer=FILE.
every key: python train.py --cfg job, or docs/reference

exit code: 0, or 2 input that cannot be used
"""
SIZES = ("hidden_channels", "num_layers")  # of a checkpoint's network


def add_parsers(subparsers: Subparsers) -> None:
    """Add the `train` command."""
    short = "the network on your own runs, compared with the analytical model"
    parser = add_command(subparsers, "train", short, DESCRIPTION, EXAMPLES, _train)
    parser.add_argument("folder", metavar="FOLDER", help="folder of your runs")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--init", metavar="CHECKPOINT", help="a checkpoint.pt whose network trains on")
    start.add_argument("--source", metavar="FOLDER", help="the same runs, recorded on another machine")
    parser.add_argument("--out", metavar="DIR", help="folder for the checkpoint and tables (default: outputs/train)")
    parser.add_argument("--set", dest="keys", action="append", default=[], metavar="KEY=VALUE",
                        help="any other key of train.py; may be repeated")  # fmt: skip


def _train(args: argparse.Namespace) -> None:
    reuse_memory()
    use_python_strings()
    from gnnperf.gnn import as_built, wide_console
    from gnnperf.predict import EntryConfig, composed, train

    paths = {"data.path": args.folder, "init_from": args.init, "data.source_path": args.source, "out": args.out}
    values: dict[str, Any] = {key: path for key, path in paths.items() if path is not None}
    config = composed("train", EntryConfig, *_overrides(args), **values)
    config.data = as_built(config.data, key_names(args.keys))
    if not config.trains_network:
        raise InputError(f"trains the network, not {config.learner.kind}", where="gnnperf train",
                         remedy="python train.py experiment=NAME trains the other learners")  # fmt: skip
    onto = wide_console()
    onto.quiet = onto.quiet or args.json
    trained = train(config, onto)
    if trained is None:  # another process of torchrun prints
        return
    if args.json:
        write_out(to_json(_document(trained) | {"next": _next(trained, args.folder)}))
    onto.print(f"next: {_next(trained, args.folder)}", soft_wrap=True)


def _overrides(args: argparse.Namespace) -> list[str]:
    """What the flags stand for; the keys as they were written go over it."""
    from gnnperf.gnn import load_checkpoint

    keys = [*keys_of(args.folder), f"trainer.progress_bar={str(not args.json).lower()}"]
    if args.init is not None:
        model = load_checkpoint(Path(args.init)).model
        keys += ["experiment=fine_tune", *(f"model.{name}={getattr(model, name)}" for name in SIZES)]
    if args.source is not None:
        keys.append("experiment=transfer")
    return [*keys, *args.keys]


def keys_of(given: str) -> list[str]:
    """Keys that follow from a folder of recordings; those of a build are set by `as_built`."""
    from gnnperf.gnn import drawn_axis

    folder = Path(given).expanduser()
    drawn = folder.is_dir() and not any((folder / name).is_file() for name in ("splits.json", "build.json"))
    return ["data.op_tables=[]", *([f"data.axis={drawn_axis(folder)}"] if drawn else [])]


def key_names(words: Iterable[str]) -> set[str]:
    """The keys of KEY=VALUE, without Hydra's marks before them."""
    return {word.partition("=")[0].lstrip("+~").strip() for word in words}


def _document(trained: "Trained") -> dict[str, Any]:
    verdict, split = trained.verdict, trained.data.split
    nodes = trained.tables["val"].query("node_type == 'all'").set_index("predictor")
    low, high = verdict.difference_interval
    return {
        "checkpoint": str(trained.path),
        "sha256": trained.checkpoint.sha256,
        "split": {"axis": split.axis, "train": list(split.train), "val": list(split.val), "test": list(split.test)},
        "num_runs": {"train": verdict.num_train_runs, "val": verdict.num_val_runs},
        "step_error": {"network": verdict.network, "analytic": verdict.analytic,
                       "difference_low": low, "difference_high": high},
        "node_gmae": {name: nodes.loc[estimate, ["gmae", "gmae_low", "gmae_high"]].to_dict()
                      for name, estimate in (("network", "gnn"), ("analytic", "analytic"))},
        "use": str(verdict.use),
        "evidence": verdict.evidence,
        "advice": verdict.advice,
    }  # fmt: skip


def _next(trained: "Trained", folder: str) -> str:
    """The command that predicts with the favored model; without --source the checkpoint holds the analytical one."""
    favors_network = trained.verdict.use == "network"
    if trained.data.speed_factors is not None:
        return f"gnnperf predict TRACE --set transfer={trained.path}" if favors_network else f"gnnperf train {folder}"
    analytic = "" if favors_network else " --set mode=analytic"
    return f"gnnperf predict TRACE --checkpoint {trained.path} --set evidence=none{analytic}"
