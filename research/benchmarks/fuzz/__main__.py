"""Mutated traces, archives, tables, cards, checkpoints, YAML and edits through every reader, and through predict.

    python -m research.benchmarks.fuzz --seconds 60                    about as long, all readers and the whole path
    python -m research.benchmarks.fuzz --cases 1000000 --whole-path 10000
    python -m research.benchmarks.fuzz --case kineto:17                one case again, with its traceback

A case is a number: the same seed, reader and number give the same bytes. Exit code 1 if any case raised anything but
InputError, took more than 20 s or 2 GB, or gave a step time that is not finite and positive.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gnnperf.core import InputError
from research.benchmarks.fuzz.corpus import kineto
from research.benchmarks.fuzz.run import LIMIT_S, Tally, case_bytes, keep, rows, run_reader
from research.benchmarks.fuzz.targets import TARGETS, WHOLE_PATH, predicted_step

OUT = Path("outputs/fuzz")


def main() -> int:
    """Run the cases; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--cases", type=int, default=1_000_000, help="of all readers together")
    parser.add_argument("--whole-path", type=int, default=10_000, help="cases through predict")
    parser.add_argument("--readers", nargs="+", choices=[*TARGETS, WHOLE_PATH], default=[*TARGETS, WHOLE_PATH])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--case", help="READER:NUMBER, run here and now")
    arguments = parser.parse_args()
    if arguments.case:
        return one_case(arguments.case, arguments.seed)
    tallies = run(
        arguments.readers, arguments.cases, arguments.whole_path, arguments.seed, arguments.processes, arguments.seconds
    )
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


def run(
    readers: list[str], cases: int, whole_path: int, seed: int, processes: int, seconds: float | None
) -> dict[str, Tally]:
    """Cases by reader; with `seconds`, readers take turns of equal length."""
    shares = {reader: TARGETS[reader].share for reader in readers if reader in TARGETS}
    numbers = {reader: range(max(1, round(cases * share / sum(shares.values())))) for reader, share in shares.items()}
    if WHOLE_PATH in readers:
        numbers[WHOLE_PATH] = range(whole_path)
    _import_everything()
    turn_s = None if seconds is None else seconds * processes / len(numbers)

    def one(reader: str) -> Tally:
        until = time.monotonic() + (turn_s if turn_s is not None else 10**9)
        return run_reader(reader, numbers[reader], seed, until)

    with ThreadPoolExecutor(processes) as pool:
        return dict(zip(numbers, pool.map(one, numbers), strict=True))


def _import_everything() -> None:
    """Load what readers load, once, before workers are forked."""
    with tempfile.TemporaryDirectory() as folder:
        for reader, target in TARGETS.items():
            path = Path(folder) / reader / target.file
            path.parent.mkdir()
            path.write_bytes(case_bytes(reader, 0, 0)[0])
            try:
                target.read(path)
            except Exception:  # counted when the case runs
                continue
        whole = Path(folder) / "rank_0.json"
        whole.write_text(json.dumps(kineto()))
        for seed in range(8):  # compiles, once
            with contextlib.suppress(InputError):
                predicted_step(whole, random.Random(seed))


def one_case(case: str, seed: int) -> int:
    """Run a case in this process and let its exception out."""
    reader, _, number = case.partition(":")
    data, rng = case_bytes(reader, int(number), seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / TARGETS["kineto" if reader == WHOLE_PATH else reader].file
        path.write_bytes(data)
        try:
            result = predicted_step(path, rng) if reader == WHOLE_PATH else TARGETS[reader].read(path)
        except InputError as error:
            print(f"refused: {error}")
            return 0
    print(f"accepted: {str(result)[:500]} (limit {LIMIT_S:g} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
