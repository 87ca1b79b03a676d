"""Collectives of multi-rank public runs: matched over ranks, and consistent in kind, size and time."""

from __future__ import annotations

from research.benchmarks._public_runs import graph_recordings, imported

RUNS = ("dlrm-8", "megatron-tp2", "torchrec/")


def main() -> None:
    """Print one line per run."""
    print("| run | ranks | collectives matched over all ranks | without all peers | inconsistent |")
    print("|---|---|---|---|---|")
    for recording in graph_recordings(RUNS):
        _, graph = imported(recording)
        counts = graph.counts or {}
        matched, missing = counts["collectives_matched"], counts["collectives_without_all_peers"]
        share = matched / max(matched + missing, 1)
        print(
            f"| {recording.name} | {len(graph.ranks)} | {matched} of {matched + missing} ({share:.1%}) | {missing} | "
            f"{counts['collectives_inconsistent']} |"
        )


if __name__ == "__main__":
    main()
