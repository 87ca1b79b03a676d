"""One measured pass over the placements of datasets/cpu-sharding; two passes, minutes apart, tell the noise.

    python -m research.benchmarks.record_placements      writes the next pass into datasets/cpu-sharding/placements.json

Nothing else should run on the machine meanwhile. `python -m research.benchmarks sharding` compares predictions with it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from research.recording.sharding_problems import measure_all

FILE = Path("datasets/cpu-sharding/placements.json")


def main() -> None:
    """Measure, then add the pass."""
    with tempfile.TemporaryDirectory() as folder:
        measured = measure_all(Path(folder))
    result = json.loads(FILE.read_text()) if FILE.exists() else {"passes": []}
    result["passes"].append(measured)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(result, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
