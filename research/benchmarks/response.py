"""Scale one kind of node and judge the makespan; next to it the same graph without waits for the device."""

from __future__ import annotations

from gnnperf.schedule.step_response import response, without_waits
from research.benchmarks._frame import run_main
from research.benchmarks._public_runs import graph_recordings, imported

SCALINGS = (
    "compute x 0",
    "compute x 0.5",
    "compute x 2",
    "collectives x 0",
    "collectives x 10",
    "one rank's compute x 2",
)


def main() -> None:
    """Print makespan / unscaled makespan, with and without wait edges."""
    print("| run | " + " | ".join(SCALINGS) + " |")
    print("|---" * (len(SCALINGS) + 1) + "|")
    for recording in graph_recordings():
        _, graph = imported(recording)
        full, ablated = response(graph), response(without_waits(graph))
        pairs = zip(full.ratio.values(), ablated.ratio.values(), strict=True)
        records = " | ".join(f"{a:.3f} ({b:.3f})" for a, b in pairs)
        if full.num_unknown:
            records += f" {full.num_unknown} nodes and gaps never measured"
        print(f"| {recording.name} | {records} |", flush=True)
    print("\nmakespan relative to the unscaled one; in brackets without edges that wait for device work")


if __name__ == "__main__":
    run_main(main)
