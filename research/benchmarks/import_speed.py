"""File -> TraceTable and file -> graph: time and peak memory, against HolisticTraceAnalysis loading the same file.

    python -m research.benchmarks.import_speed [FILE] --repeats 5 --peer /path/to/python-with-hta

Without FILE: hta/trace_diff/control of the public traces.

Every repeat is a fresh process, the two programs take turns, imports are not counted. The peer is left out without
`--peer`. Needs nothing of HolisticTraceAnalysis here: it runs in its own environment.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from research.benchmarks._frame import run_main
from research.benchmarks._public_runs import graph_recordings, mirror
from research.benchmarks._results import save_result

LOAD = """
import json, resource, sys, time
from pathlib import Path
from gnnperf.trace import read_run
{more}
start, cpu = time.perf_counter(), time.process_time()
result = {load}
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, {rows}, cpu]))
"""
TABLES = LOAD.format(more="", load="read_run(Path(sys.argv[1]))", rows="sum(len(t.events) for t in result.tables)")
GRAPH = LOAD.format(
    more="from gnnperf.graph import build_graph",
    load="build_graph(read_run(Path(sys.argv[1])))",
    rows="result.num_nodes",
)
PEER = """
import json, logging, resource, sys, time
logging.disable(logging.CRITICAL)
from hta.common.trace import Trace
start, cpu = time.perf_counter(), time.process_time()
trace = Trace(trace_files={0: sys.argv[1]}, trace_dir="")
trace.parse_traces(use_multiprocessing=False)
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, len(trace.get_trace(0)), cpu]))
"""


def run(python: str, script: str, file: Path) -> list[float]:
    """Seconds, peak MiB, rows and CPU seconds of one load in a fresh process."""
    done = subprocess.run([python, "-c", script, str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{python} failed: {done.stderr.strip().splitlines()[-1] if done.stderr else done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def report(name: str, runs: list[list[float]]) -> tuple[float, float]:
    """Print medians; return the median seconds and CPU seconds. Rows are events, or nodes of the graph."""
    seconds, cpu = [r[0] for r in runs], statistics.median(r[3] for r in runs)
    median, peak = statistics.median(seconds), statistics.median(r[1] for r in runs)
    spread = f"{min(seconds):.3f} to {max(seconds):.3f}"
    print(f"{name:15s} {median:7.3f} s ({spread}), CPU {cpu:.3f} s   peak {peak:6.1f} MiB   {runs[0][2]:,} rows")
    return median, cpu


def default_file() -> Path:
    """The file that BENCHMARKS.md promises a speed on."""
    recording = next(graph_recordings(("hta/trace_diff/control",)))
    return mirror() / recording.entries[0].name


def main(arguments: Sequence[str]) -> None:
    """Take turns, then print medians and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--peer", help="interpreter that can import hta (HolisticTraceAnalysis 0.5.0)")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(arguments)
    file = args.file or default_file()
    programs = {"file -> tables": (sys.executable, TABLES), "file -> graph": (sys.executable, GRAPH)}
    if args.peer:
        programs["hta"] = (args.peer, PEER)
    turns = [
        {name: run(python, script, file) for name, (python, script) in programs.items()} for _ in range(args.repeats)
    ]
    medians = {name: report(name, [turn[name] for turn in turns]) for name in programs}
    if args.peer and not args.file:
        save_result("import_speed", medians["hta"][0] / medians["file -> tables"][0])
    for name in list(programs)[:2] if args.peer else ():
        seconds, cpu = (theirs / ours for theirs, ours in zip(medians["hta"], medians[name], strict=True))
        print(f"hta / {name:15s} {seconds:7.1f}, CPU {cpu:.1f} (steadier on a busy machine)")


if __name__ == "__main__":
    run_main(main)
