"""File -> TraceTable: time and peak memory, against HolisticTraceAnalysis loading the same file.

    python benchmarks/import_speed.py FILE --repeats 5 --peer /path/to/python-with-hta

Every repeat is a fresh process, the two programs take turns, imports are not counted. The peer is left out without
`--peer`. Needs nothing of HolisticTraceAnalysis here: it runs in its own environment.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

OURS = """
import json, resource, sys, time
from pathlib import Path
from gnnperf.trace import read_run
start, cpu = time.perf_counter(), time.process_time()
run = read_run(Path(sys.argv[1]))
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
rows = sum(len(t.events) for t in run.tables)
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, rows, cpu]))
"""
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
    """Print medians; return the median seconds and CPU seconds."""
    seconds, cpu = [r[0] for r in runs], statistics.median(r[3] for r in runs)
    median, peak = statistics.median(seconds), statistics.median(r[1] for r in runs)
    spread = f"{min(seconds):.3f} to {max(seconds):.3f}"
    print(f"{name:8s} {median:7.3f} s ({spread}), CPU {cpu:.3f} s   peak {peak:6.1f} MiB   {runs[0][2]:,} rows")
    return median, cpu


def main() -> None:
    """Take turns, then print medians and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--peer", help="interpreter that can import hta (HolisticTraceAnalysis 0.5.0)")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    ours, peer = [], []
    for _ in range(args.repeats):
        ours.append(run(sys.executable, OURS, args.file))
        if args.peer:
            peer.append(run(args.peer, PEER, args.file))
    median, cpu = report("gnnperf", ours)
    if peer:
        peer_median, peer_cpu = report("hta", peer)
        print(f"ratio    {peer_median / median:7.1f}, CPU {peer_cpu / cpu:.1f} (steadier on a busy machine)")


if __name__ == "__main__":
    main()
