"""Train the network on a data set of recorded runs: typed config -> data -> network -> fit -> checkpoint -> errors.

python train.py                              defaults, on datasets/cpu-gloo
python train.py experiment=demo out=DIR      about a minute
python train.py experiment=fine_tune init_from=CHECKPOINT data.path=DIR    a network that is there, on your runs
python train.py --multirun seed=0,1,2
python train.py --multirun experiment=sweep  a search over settings
python train.py experiment=trees             a simpler learner, judged on the same runs (research/baselines)
python train.py logger=wandb resume=auto
torchrun --nproc-per-node 2 train.py         processes that share every batch

exit code: 0, or 1 unexpected, 2 input that cannot be used, 5 standard output cannot be written (the files in `out`
are), 130 interrupted, 141 the reader of standard output left, 143 ended by SIGTERM
"""

import time
from dataclasses import asdict, replace
from pathlib import Path

from gnnperf.core import bars_on_terminal, load_plugin, plugin_names
from gnnperf.gnn import processes
from gnnperf.predict import EntryConfig, entry_point


@entry_point("train", EntryConfig)
def main(config: EntryConfig) -> float | None:
    """Train the network, or what an installed trainer trains; returns the error that a search minimizes."""
    with bars_on_terminal(quiet=not config.trainer.progress_bar or not processes().is_first):
        if config.other_trainer:
            result: float | None = load_plugin("gnnperf.trainers", config.other_trainer, where="experiment")(config)
            return result
        return train(config)


def train(config: EntryConfig) -> float | None:
    """Write checkpoint.pt, errors.csv, curves, tables and figures; print the errors on held-out runs.

    Installed evaluations (entry points of the group "gnnperf.evaluations") add their own tables and files.

    Returns:
        the GMAE of node latencies on the validation runs; None in all but the first of several processes.
    """
    # torch is imported after the configuration is known to be right: a typing error is answered at once
    from gnnperf.gnn import (
        begin_from,
        build_model,
        evaluate,
        fit,
        keep_what_helps,
        load_data,
        load_start,
        log_answers,
        make_checkpoint,
        open_log,
        print_comparison,
        processors_of,
        save_checkpoint,
        validation_gmae,
        wide_console,
        write_comparison,
    )
    from gnnperf.predict import CALIBRATED, calibrated, predictor_of

    console, out = wide_console(), Path(config.out)

    start = load_start(Path(config.init_from), config.model) if config.init_from else None
    data = load_data(config.data, config.device_spec(), config.cluster_spec(), start.earlier if start else None)
    console.print(", ".join(f"{part}: {len(steps)} steps" for part, steps in data.steps.items()))
    for other, machine_scales in data.machine_scales.items():
        console.print(f"{other}: {machine_scales}")

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
        if config.data.source_path is None:  # corrections of measurements have no calibrated intervals
            intervals = calibrated({mode: predictor_of(checkpoint, mode) for mode in CALIBRATED}, data.recordings)
            checkpoint = replace(checkpoint, intervals=intervals)
        checkpoint = save_checkpoint(out / "checkpoint.pt", checkpoint)

        tables = evaluate(model, data, config.evaluate_on)
        write_comparison(tables, out / "errors.csv")
        log_answers(log, model, data.steps["val"], tables, checkpoint.sha256)
        for part, table in tables.items():
            print_comparison(part, table, console)

        for name in plugin_names("gnnperf.evaluations"):
            load_plugin("gnnperf.evaluations", name, where="train.py")(config, data, model, checkpoint, fit_s, log)
        console.print(f"{out / 'checkpoint.pt'}  sha256 {checkpoint.sha256}", soft_wrap=True)
        return validation_gmae(tables)


if __name__ == "__main__":
    main()
