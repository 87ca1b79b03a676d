"""What a user waits for: whole commands, and the import of a file against HolisticTraceAnalysis loading the same file.

    python -m research.benchmarks speed [FILE] [--repeats 5] [--times 1] [--peer PYTHON_WITH_HTA]

Without FILE: hta/trace_diff/control of the public traces. `--times 29` repeats its events with later times, which gives
1 GB; the peer loads the file itself. Every repeat is a fresh process; all take turns. Commands include interpreter and
imports, and the first prediction of a trace fills a cache that the second one uses. Imports of libraries are not
counted in "file -> ...", nor in the peer. It runs in its own environment, and is left out without `--peer`.
"""

import gzip
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from research.benchmarks._frame import parser_of, right_aligned, run_main, show
from research.benchmarks._public_runs import graph_recordings, mirror
from research.benchmarks._results import save_result

Measured = tuple[float, float, float]  # wall seconds, processor seconds, peak MiB
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


def longer(file: Path, times: int, out: Path) -> Path:
    """The events of a file `times` times, each time with later times, and ids and steps that follow on."""

    def later(match: re.Match[str], k: int) -> str:
        number = int(match[4])
        return f"{match[1]}{number + k * LATER.get(match[2] or match[3], 2_000_000) if number else 0}"

    head, events, tail = EVENTS.split(gzip.decompress(file.read_bytes()).decode())
    with out.open("w") as written:
        written.write(head)
        written.writelines("," * (k > 0) + COUNTED.sub(partial(later, k=k), events) for k in range(times))
        written.write(tail)
    return out


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


def loaded(python: str, script: str, file: Path) -> Measured:
    """The load by itself, without the imports before it; the peak of the whole process."""
    (_, _, peak_mib), printed = ran([python, "-c", script, str(file)])
    wall_s, cpu_s = json.loads(printed.strip().splitlines()[-1])
    return wall_s, cpu_s, peak_mib


def turn(file: Path, peer: str | None, by_peer: Path) -> dict[str, Measured]:
    """Everything once; the peer loads `by_peer`."""
    with tempfile.TemporaryDirectory() as folder:
        gnnperf = [sys.executable, "-m", "gnnperf"]
        predict = [*gnnperf, "predict", str(file), "--out", f"{folder}/report", "--set", f"cache_dir={folder}/cache"]
        work: dict[str, Callable[[], Measured]] = {
            "file -> tables": lambda: loaded(sys.executable, TABLES, file),
            "file -> graph": lambda: loaded(sys.executable, GRAPH, file),
            "gnnperf import": lambda: ran([*gnnperf, "import", str(file), "--out", f"{folder}/tables"])[0],
            "gnnperf predict, first": lambda: ran(predict)[0],
            "gnnperf predict, again": lambda: ran(predict)[0],
        }
        if peer:
            work["HolisticTraceAnalysis"] = lambda: loaded(peer, PEER, by_peer)
        return {name: call() for name, call in work.items()}


def main(arguments: Sequence[str]) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--peer", help="interpreter that can import hta (HolisticTraceAnalysis 0.5.0)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--times", type=int, default=1, help="repetitions of the events")
    args = parser.parse_args(arguments)
    file = args.file or mirror() / next(graph_recordings(("hta/trace_diff/control",))).entries[0].name
    with tempfile.TemporaryDirectory() as folder:
        measured = file if args.times == 1 else longer(file, args.times, Path(folder, "longer.json"))
        turns = [turn(measured, args.peer, file) for _ in range(args.repeats)]
    table = right_aligned(file.name, "wall s", "least", "most", "CPU s", "peak MiB")
    medians: dict[str, float] = {}
    for name in turns[0]:
        wall_s, cpu_s, peak_mib = zip(*(one[name] for one in turns), strict=True)
        medians[name] = statistics.median(wall_s)
        shown = (medians[name], min(wall_s), max(wall_s), statistics.median(cpu_s))
        table.add_row(name, *(f"{value:.3f}" for value in shown), f"{statistics.median(peak_mib):.0f}")
    show(table, width=120)
    if args.peer and args.times == 1:
        ratio = medians["HolisticTraceAnalysis"] / medians["file -> tables"]
        print(f"HolisticTraceAnalysis / file -> tables: {ratio:.1f}")
        if not args.file:
            save_result("import_speed", ratio)


if __name__ == "__main__":
    run_main(main)
