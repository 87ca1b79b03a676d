"""Make the shipped catalog of public files from a mirror: `python -m research.tables.shipped_catalog MIRROR_DIR`."""

import csv
import gzip
import io
import sys
from collections.abc import Iterable
from pathlib import Path

from gnnperf.core import write_bytes
from gnnperf.trace.public.catalog import CATALOG, COLUMNS, Entry

# Field of an entry -> column of a mirror's catalog.csv, where they differ.
RENAMED = {"name": "file", "path": "upstream_path", "size_bytes": "bytes", "sha256": "upstream_sha256",
           "mirror_sha256": "sha256", "license": "licence"}  # fmt: skip
NUMBERS = ("size_bytes", "rank", "world_size", "steps")


def entry_from_mirror(row: dict[str, str]) -> Entry:
    """One row of a mirror's catalog.csv; an empty cell is unknown, and a spreadsheet may have written 3 as 3.0."""
    cells: dict[str, object] = {name: row[RENAMED.get(name, name)] or None for name in COLUMNS}
    cells |= {name: int(float(str(cells[name]))) for name in NUMBERS if cells[name]}
    return Entry(**cells)  # type: ignore[arg-type]


def save_catalog(entries: Iterable[Entry], path: Path) -> None:
    """Write a catalog; the same entries always give the same bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for entry in sorted(entries, key=lambda e: e.name):
        cells = {c: getattr(entry, c) for c in COLUMNS}
        if entry.mirror_sha256 == entry.sha256:
            cells["mirror_sha256"] = None
        writer.writerow("" if value is None else value for value in cells.values())
    write_bytes(path, gzip.compress(text.getvalue().encode(), 9, mtime=0))


def main(mirror: Path) -> None:
    """Replace the shipped catalog."""
    with (mirror / "catalog.csv").open(encoding="utf-8", newline="") as file:
        save_catalog([entry_from_mirror(row) for row in csv.DictReader(file)], CATALOG)
    print(f"{CATALOG}: {CATALOG.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
