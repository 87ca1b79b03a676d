"""What a second Dask worker and a second training process save, on a data set made of copies of recordings.

    python -m research.benchmarks data_build [--runs 1000] [--workers 1,2] [--processes 1,2] [--epochs 5]

Each build starts from nothing; all are whole commands, in this order. All builds must have the same files. A training
of one epoch and one of several show what an epoch takes, from the last build; `--processes ,` leaves them out.
Recordings are those of datasets/cpu-gloo, each as a run of its own.
"""

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from research.benchmarks._frame import parser_of, print_head, print_row, run_main
from research.benchmarks._results import ROOT
from research.benchmarks.speed import ran

RECORDED = ROOT / "datasets" / "cpu-gloo"


def copies(num_runs: int, folder: Path) -> Path:
    """A folder of runs with one recording each."""
    recordings = sorted(path for path in RECORDED.glob("*/*") if path.name.isdigit())
    for number in range(num_runs):
        recording = recordings[number % len(recordings)]
        run = folder / f"{recording.parent.name}_r{recording.name}_c{number // len(recordings)}"
        shutil.copytree(recording, run / "1")
    return folder


def digest(folder: Path) -> str:
    """Of the names and bytes of all files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(str(f.relative_to(folder)).encode() + f.read_bytes() for f in files)).hexdigest()


def numbers(text: str) -> list[int]:
    """Of a list such as 1,2."""
    return [int(word) for word in text.split(",") if word]


def main(arguments: Sequence[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--workers", type=numbers, default=[1, 2], help="of each build")
    parser.add_argument("--processes", type=numbers, default=[1, 2], help="of each training")
    parser.add_argument("--epochs", type=int, default=5, help="of the longer trainings")
    args = parser.parse_args(arguments)
    digests = set()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        raw, built = copies(args.runs, folder / "raw"), folder / "built"
        print_head("command", "wall s", "processor s", "largest process MiB")
        for workers in args.workers:
            shutil.rmtree(built, ignore_errors=True)
            build = ["gnnperf", "data", "build", str(raw), "--out", str(built), "--workers", str(workers)]
            _report(f"build of {args.runs} runs, {workers} workers", [sys.executable, "-m", *build])
            digests.add(digest(built))
        settings = [f"data.path={built}", "data.axis=workload", "data.op_tables=[]", "trainer.progress_bar=false"]
        for count in args.processes:
            several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
            train = [sys.executable, *(several if count > 1 else []), "train.py", *settings]
            first, all_ = (
                _report(f"training, {count} processes, epochs: {epochs}",
                        [*train, f"trainer.max_epochs={epochs}", f"out={folder}/model_{count}_{epochs}"])
                for epochs in (1, args.epochs)
            )  # fmt: skip
            print(f"seconds per further epoch, {count} processes: {(all_ - first) / (args.epochs - 1):.2f}", flush=True)
    print(f"different results of {len(args.workers)} builds: {len(digests)}")
    return int(len(digests) != 1)


def _report(name: str, command: list[str]) -> float:
    """Print what a whole command takes; its wall seconds."""
    (wall_s, cpu_s, peak_mib), _ = ran(command)
    print_row(name, f"{wall_s:.1f}", f"{cpu_s:.1f}", f"{peak_mib:.0f}")
    return wall_s


if __name__ == "__main__":
    run_main(main)
