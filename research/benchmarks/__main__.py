"""`python -m research.benchmarks [NAME ... [OPTION ...]]`: run all or the named ones, each in its own process."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
# they train for hours, or write: only where they are requested
BY_NAME = ("leaderboard", "learned", "summary")


def names() -> tuple[str, ...]:
    """The benchmarks there are."""
    return tuple(sorted(p.stem for p in FOLDER.glob("*.py") if not p.stem.startswith("_")))


def main(requested: Sequence[str]) -> int:
    """Run them one after the other; 1 if any failed, 2 if there is none of that name.

    What follows the first option is for the benchmarks: `learned --rows gnn`.
    """
    first = next((place for place, word in enumerate(requested) if word.startswith("-")), len(requested))
    requested, options = requested[:first], requested[first:]
    if options and not requested:
        print(f"options ({' '.join(options)}) of which benchmark? Name it first.", file=sys.stderr)
        return 2
    unknown = [name for name in requested if name not in names()]
    if unknown:
        print(f"no benchmark {unknown[0]!r}. Allowed: {', '.join(names()) or 'none yet'}.", file=sys.stderr)
        return 2
    usual = [name for name in names() if name not in BY_NAME]
    failed = [name for name in requested or usual if _run(name, options) != 0]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _run(name: str, options: Sequence[str]) -> int:
    print(f"\n== {name}", flush=True)
    command = [sys.executable, "-m", f"research.benchmarks.{name}", *options]
    return subprocess.run(command, cwd=FOLDER.parents[1], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
