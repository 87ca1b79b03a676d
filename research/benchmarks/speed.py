"""What a user waits for: whole commands, and the import of a file against HolisticTraceAnalysis loading the same file.

    python -m research.benchmarks speed [FILE] [--times 1 | --ranks 1 | --commands] [--repeats 5] [--peer PYTHON]
    python -m research.benchmarks speed --times 229 --memory-gib 3 --repeats 1         an import of 8 GB

Without FILE: hta/trace_diff/control of the public traces. `--times 29` repeats its events with later times, which gives
1 GB. `--ranks 64` predicts so many ranks, made of its last two steps with shorter kernels. `--commands` are those that
read a recorded step, a plan or nothing. Every repeat is a fresh process; all take turns. Commands include interpreter
and imports, and the first prediction of a trace fills a cache that the second one uses. Imports of libraries are not
counted in "file -> ...", nor in the peer. It loads the file itself, in its own environment, and is left out without
`--peer`. No peak is less than this process has itself.
"""

import gzip
import json
import math
import multiprocessing
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from research.benchmarks._frame import parser_of, right_aligned, run_main, show
from research.benchmarks._public_runs import graph_recordings, mirror
from research.benchmarks._results import save_result

PEER_NAME = "HolisticTraceAnalysis"
Measured = tuple[float, float, float]  # wall seconds, processor seconds, peak MiB
Work = dict[str, Callable[[], Measured]]
LOAD = """
import json, sys, time
{imports}
start, cpu = time.perf_counter(), time.process_time()
{load}
print(json.dumps([time.perf_counter() - start, time.process_time() - cpu]))
"""
READ = "from pathlib import Path\nfrom gnnperf.trace import read_run"
TABLES = LOAD.format(imports=READ, load="read_run(Path(sys.argv[1]))")
GRAPH = LOAD.format(imports=f"{READ}\nfrom gnnperf.graph import build_graph",
                    load="build_graph(read_run(Path(sys.argv[1])))")  # fmt: skip
PEER = LOAD.format(
    imports="import logging\nlogging.disable(logging.CRITICAL)\nfrom hta.common.trace import Trace",
    load='Trace(trace_files={0: sys.argv[1]}, trace_dir="").parse_traces(use_multiprocessing=False)',
)


EVENTS = re.compile(r'(?<="traceEvents": \[)(.*)(?=\n  \])', re.DOTALL)
COUNTED = re.compile(r'("(ts|correlation|External id|id|Sequence number)": |(ProfilerStep)#)(\d+)')
LATER = {"ts": 700_000, "Sequence number": 20_000, "ProfilerStep": 6}  # per repetition; of other ids 2,000,000


def longer(file: Path, times: int, out: Path) -> None:
    """The events of a file `times` times, each time with later times, and ids and steps that follow on."""

    def later(match: re.Match[str], k: int) -> str:
        number = int(match[4])
        return f"{match[1]}{number + k * LATER.get(match[2] or match[3], 2_000_000) if number else 0}"

    head, events, tail = EVENTS.split(gzip.decompress(file.read_bytes()).decode())
    with out.open("w") as written:
        written.write(head)
        written.writelines("," * (k > 0) + COUNTED.sub(partial(later, k=k), events) for k in range(times))
        written.write(tail)


def as_ranks(file: Path, ranks: int, folder: Path) -> None:
    """The last two steps of a trace once per rank. Kernels become up to 3 % shorter, so none of a stream overlap."""
    trace = json.loads(gzip.decompress(file.read_bytes()))
    steps_us = sorted(event["ts"] for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep"))
    events = [event for event in trace["traceEvents"] if event.get("ts", math.inf) >= steps_us[-2]]
    kernels_us = [(event, event["dur"]) for event in events if event.get("cat") == "kernel"]
    shorter = random.Random(0)
    for rank in range(ranks):
        for kernel, dur_us in kernels_us:
            kernel["dur"] = round(dur_us * (1 - 0.03 * shorter.random()), 3)
        distributed = trace["distributedInfo"] | {"rank": rank, "world_size": ranks}
        made = trace | {"distributedInfo": distributed, "traceEvents": events}
        (folder / f"rank_{rank}.json").write_text(json.dumps(made))


def apart(make: Callable[[Path, int, Path], None], *arguments: Any) -> None:
    """Make an input in a process of its own: a command's peak would be at least the memory that this takes."""
    process = multiprocessing.get_context("fork").Process(target=make, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit("the input was not made")


def ran(command: list[str]) -> tuple[Measured, str]:
    """A process of its own, and what it printed."""
    with tempfile.TemporaryFile("w+") as printed:
        begin = time.perf_counter()
        child = os.posix_spawnp(
            command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, printed.fileno(), 1)]
        )
        _, status, usage = os.wait4(child, 0)
        wall_s = time.perf_counter() - begin
        if status:
            sys.exit(f"failed: {' '.join(command)}")
        printed.seek(0)
        return (wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024), printed.read()


def timed(command: list[str]) -> Measured:
    """A whole command."""
    return ran(command)[0]


def loaded(python: str, script: str, file: Path) -> Measured:
    """The load by itself, without the imports before it; the peak of the whole process."""
    (_, _, peak_mib), printed = ran([python, "-c", script, str(file)])
    wall_s, cpu_s = json.loads(printed.strip().splitlines()[-1])
    return wall_s, cpu_s, peak_mib


def of_commands(_: Path, folder: str) -> Work:
    """Commands that read no trace, a small recording or a plan."""
    predict = [sys.executable, "predict.py", f"out={folder}/report", f"cache_dir={folder}/cache"]
    recorded = [*predict, "trace=datasets/cpu-gloo/dlrm_t4_r100k_d16_b256_row_x2_lo/1"]
    commands = {
        "gnnperf --help": [sys.executable, "-m", "gnnperf", "--help"],
        "predict.py --help": [sys.executable, "predict.py", "--help"],
        "recorded step, first": recorded,
        "recorded step, again": recorded,
        "plan of 16,384 ranks": [*predict, "plan=gpt_405b", "hardware=h100_sxm"],
    }
    return {name: partial(timed, command) for name, command in commands.items()}


def of_ranks(trace: Path, folder: str) -> Work:
    """Predictions, first with nothing in the cache."""
    predict = [sys.executable, "-m", "gnnperf", "predict", str(trace), "--out", f"{folder}/report"]
    predict += ["--set", f"cache_dir={folder}/cache"]
    return {f"gnnperf predict, {when}": partial(timed, predict) for when in ("first", "again")}


def of_file(trace: Path, folder: str) -> Work:
    """Reading, import and predictions of a file."""
    imported = [sys.executable, "-m", "gnnperf", "import", str(trace), "--out", f"{folder}/tables"]
    return {
        "file -> tables": partial(loaded, sys.executable, TABLES, trace),
        "file -> graph": partial(loaded, sys.executable, GRAPH, trace),
        "gnnperf import": partial(timed, imported),
        **of_ranks(trace, folder),
    }


def windows(memory_gib: float, trace: Path, folder: str) -> Work:
    """The import of a file of any size."""
    limit = ["--out", f"{folder}/tables", "--memory-gib", str(memory_gib)]
    return {"gnnperf import": partial(timed, [sys.executable, "-m", "gnnperf", "import", str(trace), *limit])}


RATIO = f"{PEER_NAME} / file -> tables"
# What is measured -> the statement of BENCHMARKS.md, and the rows that it has.
SAVED = {
    (of_file, 1, 1): ("import_speed", (RATIO,)),
    (of_file, 29, 1): ("long_trace", ("gnnperf import", "gnnperf predict, first")),
    (of_ranks, 1, 64): ("many_ranks", ("gnnperf predict, first", "gnnperf predict, again")),
    (of_commands, 1, 1): (
        "commands",
        ("gnnperf --help", "predict.py --help", "recorded step, again", "plan of 16,384 ranks"),
    ),
}


def main(arguments: Sequence[str]) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--peer", help="interpreter that can import hta (HolisticTraceAnalysis 0.5.0)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--times", type=int, default=1, help="repetitions of the events")
    parser.add_argument("--memory-gib", type=float, help="of the import, which alone is measured")
    parser.add_argument("--ranks", type=int, default=1, help="ranks made of its last two steps")
    parser.add_argument("--commands", action="store_true", help="time commands that read none of this")
    args = parser.parse_args(arguments)
    file = args.file or mirror() / next(graph_recordings(("hta/trace_diff/control",))).entries[0].name
    turns: list[dict[str, Measured]] = []
    with tempfile.TemporaryDirectory() as inputs:
        measured, works = file, of_commands if args.commands else of_file
        if args.memory_gib:
            works = partial(windows, args.memory_gib)
        if args.times > 1:
            measured = Path(inputs, "longer.json")
            apart(longer, file, args.times, measured)
        elif args.ranks > 1:
            measured, works = Path(inputs), of_ranks
            apart(as_ranks, file, args.ranks, measured)
        for _ in range(args.repeats):
            with tempfile.TemporaryDirectory() as folder:
                work = works(measured, folder)
                if args.peer:
                    work[PEER_NAME] = partial(loaded, args.peer, PEER, file)
                turns.append({name: call() for name, call in work.items()})
    table = right_aligned(file.name, "wall s", "least", "most", "CPU s", "peak MiB")
    medians: dict[str, float] = {}
    for name in turns[0]:
        wall_s, cpu_s, peak_mib = zip(*(one[name] for one in turns), strict=True)
        medians[name] = statistics.median(wall_s)
        shown = (medians[name], min(wall_s), max(wall_s), statistics.median(cpu_s))
        table.add_row(name, *(f"{value:.3f}" for value in shown), f"{statistics.median(peak_mib):.0f}")
    show(table, width=120)
    if args.peer and works is of_file and args.times == 1:
        medians[RATIO] = medians[PEER_NAME] / medians["file -> tables"]
        print(f"{RATIO}: {medians[RATIO]:.1f}")
    statement, rows = SAVED.get((works, args.times, args.ranks), ("", ()))
    if statement and not args.file and medians.keys() >= set(rows):
        save_result(statement, *(medians[name] for name in rows))


if __name__ == "__main__":
    run_main(main)
