"""Train the network on a data set of recorded runs, by the keys of conf/train.yaml; `gnnperf train` has plain flags.

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

from gnnperf.core import bars_on_terminal, load_plugin, plugin_names
from gnnperf.predict import EntryConfig, entry_point

EVALUATIONS = "gnnperf.evaluations"  # entry points: tables and files that installed distributions add


@entry_point("train", EntryConfig)
def main(config: EntryConfig) -> float | None:
    """Train the network, or what an installed trainer trains; returns the error that a search minimizes.

    That is the GMAE of node latencies on the validation runs; None in all but the first of several processes.
    """
    from gnnperf.gnn import processes  # loads torch: --help and typing errors end before

    with bars_on_terminal(quiet=not config.trainer.progress_bar or not processes().is_first):
        if not config.trains_network:
            result: float | None = load_plugin("gnnperf.trainers", "learner", where="experiment")(config)
            return result
        from gnnperf.gnn import validation_gmae, wide_console
        from gnnperf.predict import train

        evaluations = [load_plugin(EVALUATIONS, name, where="train.py") for name in plugin_names(EVALUATIONS)]
        trained = train(config, wide_console(), evaluations)
        return None if trained is None else validation_gmae(trained.tables)


if __name__ == "__main__":
    main()
