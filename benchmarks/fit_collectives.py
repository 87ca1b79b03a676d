"""Write the laws of every platform of the public collective tables: `python -m benchmarks.fit_collectives FOLDER`.

One YAML file per platform, for AnalyticPredictor(collectives=load_collectives(FILE)). All rows are used: do not judge
the laws on these tables.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from benchmarks._collective_answers import rings_of
from benchmarks._public_runs import mirror
from gnnperf.analytic.collective.files import save_collectives
from gnnperf.analytic.collective.fit import fit_collectives
from gnnperf.tables.collective_sources import read_collectives


def main(folder: Path) -> None:
    """Fit and write."""
    folder.mkdir(parents=True, exist_ok=True)
    for (source, platform), rows in read_collectives(mirror()).rows.groupby(["source", "platform"]):
        provenance = f"python -m benchmarks.fit_collectives: {len(rows)} rows of {source}, {platform}"
        path = folder / f"{re.sub(r'[^a-z0-9]+', '_', str(platform).lower())}.yaml"
        save_collectives(fit_collectives(rows, rings_of(rows), provenance), path)
        print(f"{path}: {len(rows)} rows")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m benchmarks.fit_collectives FOLDER")
    main(Path(sys.argv[1]))
