"""Records to be made, each in a process of its own that keeps the last split it loaded."""

import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from gnnperf.core import end_with_parent
from gnnperf.gnn.data.prepare import DataConfig, PreparedData
from gnnperf.predict import EntryConfig, composed
from research.baselines.judge import Learner
from research.baselines.network import Network
from research.baselines.rows import TRIVIAL, simpler
from research.baselines.training import Place, ensure_floor, ensure_record, load_split, training_part
from research.benchmarks._networks import CachedNetwork, Hybrid
from research.benchmarks._recorded_graphs import DATASET, OP_TABLES
from research.benchmarks._results import save_result
from research.evaluation.records import EvaluationRecord
from research.evaluation.row_errors import REPEAT, node_figures, rows_of, step_figures

SIMPLER = ("trees", "trees_hops")


def experiment(name: str) -> Network:
    """The network of conf/experiment/<name>.yaml."""
    given = composed("train", EntryConfig, f"experiment={name}", "trainer.progress_bar=false")
    return Network(training_part(given))


def learner(name: str) -> Learner:
    """The simpler learner of conf/experiment/<name>.yaml."""
    return simpler(composed("train", EntryConfig, f"experiment={name}").learner)


NETWORKS = Path("outputs/learned/networks")  # what a fit of the row gnn leaves to other rows and looks
GNN = CachedNetwork(experiment("gnn"), NETWORKS)

FIXED: dict[str, Learner] = dict(TRIVIAL)  # one prediction, whatever the seed
# a prediction per seed
LEARNED: dict[str, Learner] = {
    "gnn": GNN,
    "mlp": experiment("mlp"),  # the ablation "no messages" as well
    **{name.replace("_", "-"): learner(name) for name in SIMPLER},
    "hybrid": Hybrid(GNN),  # the network of the row gnn, and the analytical model
}
AFTER_OTHERS = ("hybrid",)  # uses the network that another row saves

AGAIN = "run-cpu-again"  # another day and machine
UNSEEN = "run-cpu-unseen"  # eight programs that nothing was fitted on
OTHER_DATA = (AGAIN, UNSEEN)  # axis-data set to test on, as gnnperf.gnn.data.splits names them


@dataclass(frozen=True)
class Job:
    """One record."""

    place: Place
    split: str
    learner: str

    def __str__(self) -> str:
        """As the file is named."""
        return f"{self.split}/{self.place.row}/{'fixed' if self.place.seed is None else self.place.seed}"


def jobs_of(out: Path, split: str, rows: Sequence[str], seeds: Sequence[int], part: str) -> list[Job]:
    """Every row, and where recordings are judged one by one the noise floor; what is quick comes first.

    Then seed by seed, so that a killed table has whole seeds.
    """
    floor = [Job(Place(out, REPEAT, None, part), split, REPEAT)] if part == "test" else []
    fixed = [Job(Place(out, row, None, part), split, row) for row in rows if row in FIXED]
    seeded = [Job(Place(out, row, seed, part), split, row) for seed in seeds for row in rows if row not in FIXED]
    return floor + fixed + seeded


def save_network(statement: str, records: Sequence[EvaluationRecord], split: str, steps: bool = True) -> None:
    """GMAE of nodes, and geomean of step errors, of the row gnn on a split, where it has records."""
    network = rows_of(records).get(split, {}).get("gnn", ())
    nodes = node_figures(network) if network else None
    if nodes is not None:
        values = (nodes.gmae, *([step_figures(network).gmae] if steps else []))
        save_result(statement, *(100 * value for value in values))


def make(jobs: Sequence[Job], processes: int) -> list[tuple[Job, str]]:
    """Make the records that are missing or out of date; the jobs that failed, and why: they hold up no others."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes: as many records at a time as there are processes
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=end_with_parent)
    try:
        running = {pool.submit(run, job): job for job in jobs}
        failed = []
        for done in as_completed(running):
            job, error = running[done], done.exception()
            reason = "" if error is None else f"{type(error).__name__}: {error}"
            print(f"{job}: {reason or done.result()}", file=sys.stderr, flush=True)
            failed += [(job, reason)] if reason else []
        return failed
    finally:
        pool.shutdown(cancel_futures=True)  # stopped by hand, it does not go on with waiting records


def run(job: Job) -> str:
    """In a process of the pool: one record, and what became of it."""
    data = _loaded(job)
    begin = time.perf_counter()
    made = (
        ensure_floor(job.place, data)
        if job.learner == REPEAT
        else ensure_record(job.place, (FIXED | LEARNED)[job.learner], data)
    )
    return f"made in {time.perf_counter() - begin:.0f} s" if made else "is there"


def data_config(split: str) -> DataConfig:
    """The embedded data set, split so."""
    first, *more = split.split("+")
    axis, _, other = first.partition("-") if first in OTHER_DATA else (first, "", "")
    return DataConfig(path=str(DATASET), axis=axis, op_tables=[str(path) for path in OP_TABLES],
                      test_path=str(DATASET.parent / other) if other else None,
                      train_paths=[str(DATASET.parent / name) for name in more])  # fmt: skip


_held: dict[str, PreparedData] = {}  # one at a time: it is a gigabyte


def _loaded(job: Job) -> PreparedData:
    """The job's data, kept until others are requested."""
    if job.split not in _held:
        _held.clear()
        _held[job.split] = load_split(data_config(job.split))
    return _held[job.split]
