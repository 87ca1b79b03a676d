"""`python -m benchmarks [NAME ...]`: run all benchmarks, or the named ones, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
# fit_*.py writes constants that ship, record_*.py measurements: run them by hand
NOT_BENCHMARKS = ("_", "fit_", "record_")


def names() -> tuple[str, ...]:
    """The benchmarks there are."""
    return tuple(sorted(p.stem for p in FOLDER.glob("*.py") if not p.stem.startswith(NOT_BENCHMARKS)))


def main(asked: Sequence[str]) -> int:
    """Run them one after the other; 1 if any failed, 2 if there is none of that name."""
    unknown = [name for name in asked if name not in names()]
    if unknown:
        print(f"no benchmark {unknown[0]!r}. Allowed: {', '.join(names()) or 'none yet'}.", file=sys.stderr)
        return 2
    failed = [name for name in asked or names() if _run(name) != 0]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _run(name: str) -> int:
    print(f"\n== {name}", flush=True)
    return subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=FOLDER.parent, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
