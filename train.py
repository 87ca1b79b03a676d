"""Train a model on a data set of recorded runs: typed config -> data -> model -> fit -> checkpoint.

python train.py                              defaults, on datasets/cpu-gloo
python train.py experiment=demo out=DIR      about a minute
python train.py experiment=pretrained        the checkpoint that ships, from op tables
python train.py experiment=fine_tune init_from=CHECKPOINT data.path=DIR    a network that is there, on your runs
python train.py --multirun seed=0,1,2
python train.py --multirun experiment=sweep  a search over settings
python train.py experiment=trees             a simpler learner, judged on the same runs
python train.py logger=wandb resume=auto
torchrun --nproc-per-node 2 train.py         processes that share every batch

exit code: 0, or 1 unexpected, 2 input that cannot be used, 5 standard output cannot be written (the files in `out`
are), 130 interrupted, 141 the reader of standard output left, 143 ended by SIGTERM
"""

import time
from dataclasses import asdict, replace
from pathlib import Path

from gnnperf.core.output.terminal import say
from gnnperf.core.progress.bars import bars_on_terminal
from gnnperf.gnn.training.processes import processes
from gnnperf.predict.composition import entry_point
from gnnperf.predict.composition.entry import EntryConfig


@entry_point("train", EntryConfig)
def main(config: EntryConfig) -> float | None:
    """Train on op tables where a folder of them is named, else on recorded runs; returns what they do."""
    with bars_on_terminal(quiet=not config.trainer.progress_bar or not processes().is_first):
        if config.pretrain.mirror:
            on_op_tables(config)
            return None
        return on_runs(config) if config.trains_network else simpler_on_runs(config)


def on_op_tables(config: EntryConfig) -> None:
    """Write the checkpoint that ships, and its card, into config.out."""
    from gnnperf.core.files import write_text
    from research.pretraining.card import FILE, card
    from research.pretraining.op_checkpoint import save_op_checkpoint
    from research.pretraining.recipe import shipped_checkpoint

    out = Path(config.out)

    checkpoint = save_op_checkpoint(out / "checkpoint.pt", shipped_checkpoint(config.pretrain, config.seed))

    write_text(out / FILE, card(checkpoint))
    say(f"{out / 'checkpoint.pt'}  sha256 {checkpoint.sha256}")


def on_runs(config: EntryConfig) -> float | None:
    """Write checkpoint.pt, errors.csv, cells and what there is to look at; print how good the model is.

    Returns:
        the GMAE of node latencies on the validation runs; None in all but the first of several processes.
    """
    # torch is imported after the configuration is known to be right: a typing error is answered at once
    from gnnperf.gnn.baselines.beside import judged_beside, keep_cells, show_rows, variant_of
    from gnnperf.gnn.checkpoint import make_checkpoint, save_checkpoint
    from gnnperf.gnn.data.prepare import load_data
    from gnnperf.gnn.data.processors import processors_of
    from gnnperf.gnn.finetune import begin_from, load_start
    from gnnperf.gnn.training.curves import open_log
    from gnnperf.gnn.training.evaluate import (
        evaluate,
        print_comparison,
        validation_gmae,
        wide_console,
        write_comparison,
    )
    from gnnperf.gnn.training.fit import build_model, fit
    from gnnperf.gnn.training.gate import keep_what_helps
    from gnnperf.gnn.training.look import log_answers
    from gnnperf.predict.blended import CALIBRATED, predictor_of
    from gnnperf.predict.intervals import calibrated
    from gnnperf.predict.judged import fits_of

    console, out = wide_console(), Path(config.out)

    start = load_start(Path(config.init_from), config.model) if config.init_from else None
    data = load_data(config.data, config.device_spec(), config.cluster_spec(), start.earlier if start else None)
    console.print(", ".join(f"{part}: {len(steps)} steps" for part, steps in data.steps.items()))
    for other, paces in data.paces.items():
        console.print(f"{other}: {paces}")

    with open_log(config) as log:
        fresh, begin = build_model(config, data), time.perf_counter()
        model = fit(config, data, begin_from(fresh, start) if start else fresh, log)
        if not processes().is_first:
            return None

        for node_type, share in keep_what_helps(model, data).items():
            console.print(f"{node_type}: {share:.0%} of its corrections helped on the validation runs and are kept")

        fit_s = time.perf_counter() - begin
        calibrated_on = processors_of(Path(config.data.path).expanduser() / name for name in data.split.val)
        training = {"seed": config.seed, "optim": asdict(config.optim), "trainer": asdict(config.trainer),
                    "init_from": start.sha256 if start else None, "processors": list(map(asdict, calibrated_on)),
                    "bucket_bytes": config.data.bucket_bytes}  # fmt: skip
        checkpoint = make_checkpoint(model, config.model, data, training)
        sure = calibrated({mode: predictor_of(checkpoint, mode) for mode in CALIBRATED}, data.recordings)
        checkpoint = save_checkpoint(out / "checkpoint.pt", replace(checkpoint, intervals=sure))

        tables = evaluate(model, data, config.evaluate_on)
        write_comparison(tables, out / "errors.csv")
        log_answers(log, model, data.steps["val"], tables, checkpoint.sha256)
        for part, table in tables.items():
            print_comparison(part, table, console)

        fits = fits_of(checkpoint, model, config.row, fit_s)
        judged = judged_beside(fits, data, config.evaluate_on, variant_of(config.data))
        keep_cells(judged, config.cells_folder)
        show_rows(judged, log)
        console.print(f"{out / 'checkpoint.pt'}  sha256 {checkpoint.sha256}", soft_wrap=True)
        return validation_gmae(tables)


def simpler_on_runs(config: EntryConfig) -> float | None:
    """Fit a learner that is not the network, write cells; print how good it is beside what nothing was learned for.

    Returns:
        its error on the validation runs (beside.validation_error); None where nothing is learned, and in all but the
        first of several processes.
    """
    from gnnperf.gnn.baselines.beside import judged_beside, keep_cells, show_rows, validation_error, variant_of
    from gnnperf.gnn.baselines.rows import fits_asked_for
    from gnnperf.gnn.data.prepare import load_data
    from gnnperf.gnn.training.curves import open_log

    if not processes().is_first:
        return None

    data = load_data(config.data, config.device_spec(), config.cluster_spec())
    for other, paces in data.paces.items():
        say(f"{other}: {paces}")
    fits = fits_asked_for(config.learner, config.row, data, config.seed)

    judged = judged_beside(fits, data, config.evaluate_on, variant_of(config.data))
    keep_cells(judged, config.cells_folder)
    with open_log(config) as log:
        show_rows(judged, log)
    return validation_error(judged, config.row) if fits else None


if __name__ == "__main__":
    main()
