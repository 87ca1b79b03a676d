"""Make the shipped catalog from a mirror's catalog.csv: `python -m gnnperf.trace.public.compile MIRROR_DIR`."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from gnnperf.trace.public.catalog import CATALOG, Entry, save_catalog


def entry_from_mirror(row: dict[str, str]) -> Entry:
    """One row of a mirror's catalog.csv; an empty cell is unknown."""
    return Entry(
        name=row["file"],
        kind=row["kind"],
        run=row["run"] or None,
        repo=row["repo"],
        commit=row["commit"] or None,
        path=row["upstream_path"],
        size_bytes=int(row["bytes"]),
        sha256=row["upstream_sha256"],
        mirror_sha256=row["sha256"],
        license=row["licence"],
        gpu=row["gpu"] or None,
        rank=_number(row["rank"]),
        world_size=_number(row["world_size"]),
        steps=_number(row["steps"]),
        with_shapes=row["with_shapes"] or None,
        scrubbed=row["scrubbed"] or None,
        note=row["note"] or None,
    )


def _number(td: str) -> int | None:
    """An integer that a spreadsheet may have written as 3.0; None if empty."""
    return int(float(td)) if td else None


def main(mirror: Path) -> None:
    """Replace the shipped catalog."""
    with (mirror / "catalog.csv").open(encoding="utf-8", newline="") as file:
        save_catalog([entry_from_mirror(row) for row in csv.DictReader(file)], CATALOG)
    print(f"{CATALOG}: {CATALOG.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
