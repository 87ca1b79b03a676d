"""Mutated traces, archives, tables, cards, checkpoints, YAML and edits through every reader, and through predict.

    python -m research.benchmarks.fuzz --seconds 60            all readers and the whole path, equally long
    python -m research.benchmarks.fuzz --case kineto:17        one case again, with its traceback

A case is a number: the same seed, reader and number give the same bytes. Exit code 1 if any case raised anything but
InputError, took more than 20 s or 2 GB, or gave a step time that is not finite and positive.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gnnperf.core import InputError
from research.benchmarks.fuzz.run import LIMIT_S, Tally, keep, read_case, rows, run_reader
from research.benchmarks.fuzz.targets import TARGETS, WHOLE_PATH

OUT = Path("outputs/fuzz")
READERS = (*TARGETS, WHOLE_PATH)


def main() -> int:
    """Run the cases; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after so long")
    parser.add_argument("--readers", nargs="+", choices=READERS, default=READERS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--case", help="READER:NUMBER, run here and now")
    arguments = parser.parse_args()
    if arguments.case:
        return one_case(arguments.case, arguments.seed)
    tallies = run(arguments.readers, arguments.seed, arguments.processes, arguments.seconds)
    print("\n".join(rows(tallies)))
    failures = {case: ended for tally in tallies.values() for case, ended in tally.failures.items()}
    for kind, count in Counter(how.partition(": ")[0] for how in failures.values()).most_common():
        case, ended = next((case, how) for case, how in failures.items() if how.partition(": ")[0] == kind)
        print(
            f"FAILED {count}x {ended}\n  {keep(case, arguments.seed, ended, OUT)}: python -m research.benchmarks.fuzz "
            f"--seed {arguments.seed} --case {case}"
        )
    total = sum(tally.cases for tally in tallies.values())
    print(f"{total - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


def run(readers: list[str], seed: int, processes: int, seconds: float) -> dict[str, Tally]:
    """Cases by reader; readers take turns of equal length."""
    with tempfile.TemporaryDirectory() as folder:  # what readers load and compile is there before workers are forked
        for reader in TARGETS:
            with contextlib.suppress(Exception):  # counted when the case runs
                read_case(reader, 0, 0, Path(folder))
        for number in range(8):
            with contextlib.suppress(Exception):
                read_case(WHOLE_PATH, number, 0, Path(folder))
    turn_s = seconds * processes / len(readers)

    def one(reader: str) -> Tally:
        return run_reader(reader, range(10**9), seed, time.monotonic() + turn_s)

    with ThreadPoolExecutor(processes) as pool:
        return dict(zip(readers, pool.map(one, readers), strict=True))


def one_case(case: str, seed: int) -> int:
    """Run a case in this process and let its exception out."""
    reader, _, number = case.partition(":")
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = read_case(reader, int(number), seed, Path(folder))
        except InputError as error:
            print(f"refused: {error}")
            return 0
    print(f"accepted: {str(result)[:500]} (limit {LIMIT_S:g} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
