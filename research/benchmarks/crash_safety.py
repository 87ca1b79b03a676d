"""What is left where a command wrote when it is killed, interrupted, out of space, or runs twice at once.

    python -m research.benchmarks.crash_safety [--seed 0] [--scale 1.0] [--only import predict train record]

Each trial begins with the output of an earlier run on another input. Half of the signals come at a random moment of the
whole run, half at a random moment after the first file appears under a temporary name. A full disk is a limit on the
size of a file (RLIMIT_FSIZE). Results of a trial:

    earlier   the earlier output, byte for byte the same facts (for record and train: none was complete yet)
    new       the new output, complete
    broken    anything else: a mixture, a file that cannot be read, a leftover that the next run keeps
"""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gnnperf.core.files import SUFFIX
from research.benchmarks._frame import parser_of, right_aligned, run_main, show

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "datasets" / "cpu-gloo" / "examples"
INPUTS = (EXAMPLES / "resnet_n1_c8_i32_b16_x2_lo", EXAMPLES / "gpt_l2_w64_s64_b4_x2_lo")
EARLIER, NEW, BROKEN = "earlier", "new", "broken"
KILL, INTERRUPT, FULL, TWO = "SIGKILL", "SIGINT", "full disk", "two writers"
AFTER_FIRST_FILE_S = 0.05
TRIALS = {  # of each command
    "import": {KILL: 60, INTERRUPT: 20, FULL: 20, TWO: 15},
    "predict": {KILL: 24, INTERRUPT: 8, FULL: 10, TWO: 5},
    "train": {KILL: 3, INTERRUPT: 1, FULL: 1},
    "record": {KILL: 6, INTERRUPT: 3, FULL: 3},
}
PROGRAM = """
import torch
weight = torch.nn.Parameter(torch.ones(64, 64))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(30):
    (weight @ weight).sum().backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Job:
    """A command that writes a folder."""

    command: Callable[[Path, Path], list[str]]
    facts: Callable[[Path], object]
    inputs: tuple[Path, Path] = INPUTS
    keeps: bool = True
    modules: tuple[str, ...] = ()


@dataclass
class Tally:
    """Trials of one command under one fault."""

    results: Counter[str] = field(default_factory=Counter)
    wrong_exits: int = 0


def import_facts(out: Path) -> object:
    from gnnperf.graph import read_graph
    from gnnperf.trace import read_run

    tables = read_run(out).tables
    return sorted(p.name for p in out.iterdir()), [len(t.events) for t in tables], read_graph(out / "graph").num_nodes


def predict_facts(out: Path) -> object:
    import pyarrow.parquet as pq

    from gnnperf.report.write import FILES

    step_us = json.loads((out / FILES[0]).read_bytes())["step_time_us"]
    events = len(json.loads(gzip.decompress((out / FILES[2]).read_bytes()))["traceEvents"])
    whole = (out / FILES[3]).read_text().rstrip().endswith("</html>")
    return sorted(p.name for p in out.iterdir()), step_us, pq.read_table(out / FILES[1]).num_rows, events, whole


def train_facts(out: Path) -> object:
    from gnnperf.gnn.checkpoint import load_checkpoint

    load_checkpoint(out / "checkpoint.pt")
    return "complete"


def record_facts(out: Path) -> object:
    from gnnperf.record import card
    from gnnperf.trace import read_run

    if card.status(out) != card.COMPLETE:
        raise ValueError("not complete")
    return len(read_run(out).tables)


def jobs(folder: Path) -> dict[str, Job]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    steps = ["--warmup-steps", "1", "--unprofiled-steps", "2", "--profiled-steps", "2"]
    graphs = ("gnnperf.graph.cli", "gnnperf.graph.build", "gnnperf.graph.storage", "gnnperf.trace.storage")
    return {
        "import": Job(lambda run, out: ["gnnperf", "import", str(run), "--out", str(out)], import_facts,
                      modules=graphs),
        "predict": Job(lambda run, out: ["predict.py", f"trace={run}", f"out={out}", f"cache_dir={folder / 'cache'}",
                                         "quiet=true"], predict_facts, modules=(*graphs, "predict")),
        "train": Job(lambda run, out: ["train.py", "experiment=demo", "trainer.max_epochs=1",
                                       "trainer.progress_bar=false", f"out={out}"], train_facts, keeps=False,
                     modules=("train", *(f"gnnperf.gnn.{m}" for m in ("training.fit", "data.prepare", "checkpoint")))),
        "record": Job(lambda run, out: ["gnnperf", "record", "--out", str(out), *steps, "--", sys.executable,
                                        str(program)], record_facts, keeps=False, modules=("gnnperf.record.cli",)),
    }  # fmt: skip


def trials_of(job: Job, counts: dict[str, int], folder: Path, seed: int) -> dict[str, Tally]:
    """Run the trials of one command; `folder` is empty, or was used for the same command before."""
    for module in job.modules:
        __import__(module)
    chance = random.Random(seed)
    first, second = folder / "first", folder / "second"
    begin = time.monotonic()
    for run, reference in zip(job.inputs, (first, second), strict=True):
        if (job.keeps or reference == second) and _wait(_start(job, run, reference)) != 0:
            raise RuntimeError(f"the command fails by itself: {job.command(run, reference)}")
    usual_s = (time.monotonic() - begin) / (2 if job.keeps else 1)
    sizes = sorted(p.stat().st_size for p in second.rglob("*") if p.is_file())
    known = {_facts(job, second): NEW} | ({_facts(job, first): EARLIER} if job.keeps else {})
    tallies = {fault: Tally() for fault in counts}
    for fault, count in counts.items():
        for _ in range(count):
            out = folder / "trial" / "out"
            shutil.rmtree(out.parent, ignore_errors=True)
            out.parent.mkdir()
            if job.keeps:
                shutil.copytree(first, out)
            codes = _with_fault(job, fault, out, chance, usual_s, sizes[-1])
            result = known.get(_facts(job, out), BROKEN)
            if result == BROKEN and not job.keeps and _facts(job, out) is None:
                result = EARLIER  # not complete, and no reader takes it for complete
            if fault != KILL and _has_temporary(out.parent):
                result = BROKEN
            tallies[fault].results[result] += 1
            tallies[fault].wrong_exits += not set(codes) <= {KILL: {0, -9}, INTERRUPT: {0, 130, -2}, FULL: {0, 2},
                                                           TWO: {0}}[fault]  # fmt: skip
    if job.keeps and KILL in counts:
        _refuse_leftovers(job, folder / "trial" / "out")
    return tallies


def _with_fault(job: Job, fault: str, out: Path, chance: random.Random, usual_s: float, largest: int) -> list[int]:
    """Run the command under a fault; its exit codes."""
    if fault == TWO:
        started = [_start(job, run, out) for run in job.inputs]
        return [_wait(process) for process in started]
    if fault == FULL:
        return [_wait(_start(job, job.inputs[1], out, file_bytes=chance.randrange(largest)))]
    process = _start(job, job.inputs[1], out)
    if chance.random() < 0.5:
        time.sleep(chance.random() * usual_s)
    else:
        give_up = time.monotonic() + 2 * usual_s
        while time.monotonic() < give_up and not (_has_temporary(out.parent) or _has_ended(process)):
            time.sleep(0.0005)
        time.sleep(chance.random() * AFTER_FIRST_FILE_S)
    try:
        if fault == INTERRUPT:
            os.kill(process, signal.SIGINT)
        else:
            os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended
    return [_wait(process)]


def _has_temporary(folder: Path) -> bool:
    return any(name.endswith(SUFFIX) for _, folders, names in os.walk(folder) for name in (*folders, *names))


def _has_ended(process: int) -> bool:
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _refuse_leftovers(job: Job, out: Path) -> None:
    """What a killed run left is gone after the next run."""
    (out.parent / f".{out.name}.killed{SUFFIX}").mkdir()
    if _wait(_start(job, job.inputs[1], out)) != 0 or [p.name for p in out.parent.iterdir()] != [out.name]:
        raise RuntimeError(f"leftovers: {sorted(p.name for p in out.parent.iterdir())}")


def _start(job: Job, run: Path, out: Path, file_bytes: int | None = None) -> int:
    """The command in a process of its own, with the modules of this one."""
    argv = job.command(run, out)
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setsid()
        with _silent():
            if file_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
            code = _call(argv)
    except BaseException as error:
        code = _code_of(error)
    finally:
        os._exit(code)


def _call(argv: list[str]) -> int:
    from gnnperf.cli import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    if argv[0] == "gnnperf":
        return main(argv[1:])
    sys.argv = argv
    __import__(Path(argv[0]).stem).main()
    return 0


def _code_of(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return 130
    return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1


@contextmanager
def _silent() -> Iterator[None]:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    yield


def _wait(process: int) -> int:
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def _facts(job: Job, out: Path) -> str | None:
    """In a process of its own: pyarrow's threads do not survive a fork."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        try:
            text = repr(job.facts(out))
        except Exception:
            os._exit(1)
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    return text if _wait(process) == 0 else None


def main(words: Sequence[str]) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="times the number of trials")
    parser.add_argument("--only", nargs="+", default=list(TRIALS), choices=list(TRIALS))
    arguments = parser.parse_args(words)
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    table = right_aligned("What a fault leaves", "trials", EARLIER, NEW, BROKEN, "other exit codes", "seconds")
    with tempfile.TemporaryDirectory() as temporary:
        for name, job in jobs(Path(temporary)).items():
            if name in arguments.only:
                counts = {fault: max(round(n * arguments.scale), 1) for fault, n in TRIALS[name].items()}
                (Path(temporary) / name).mkdir()
                begin = time.monotonic()
                for fault, tally in trials_of(job, counts, Path(temporary) / name, arguments.seed).items():
                    by = [str(tally.results[result]) for result in (EARLIER, NEW, BROKEN)]
                    table.add_row(f"{name}, {fault}", str(counts[fault]), *by, str(tally.wrong_exits), "")
                table.add_row(f"{name}, all", "", "", "", "", "", f"{time.monotonic() - begin:.0f}")
    show(table, width=120)


if __name__ == "__main__":
    run_main(main)
