"""`gnnperf import PATH... --out DIR`."""

from __future__ import annotations

import argparse
from pathlib import Path

_NAMED = 10


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `import` command."""
    parser = subparsers.add_parser("import", help="trace file, directory or archive -> TraceTables and graph (Parquet)")
    parser.add_argument("path", nargs="+", type=Path, help="files of ONE run: rank files, a directory, an archive")
    parser.add_argument("--out", required=True, type=Path, help="directory to write: tables/ and graph/")
    parser.set_defaults(run=_import)


def _import(args: argparse.Namespace) -> int:
    from gnnperf.graph.build import build_graph
    from gnnperf.graph.storage import refuse_foreign, write_graph
    from gnnperf.output.terminal import say
    from gnnperf.progress import task
    from gnnperf.trace import read_run
    from gnnperf.trace.storage import write_run

    refuse_foreign(args.out / "graph")  # before anything is written
    run = read_run(args.path if len(args.path) > 1 else args.path[0])
    graph = build_graph(run)
    with task("writing", 2, "folders") as advance:
        write_run(run, args.out / "tables")
        advance(1.0)
        write_graph(graph, args.out / "graph")
        advance(1.0)
    say(f"{run.name}: {len(run.tables)} of {run.world_size} ranks, {len(graph.steps)} steps")
    counts = ", ".join(f"{count:,} {kind}" for kind, count in graph.num_nodes_by_type().items() if count)
    say(f"{graph.num_nodes:,} nodes ({counts}), {len(graph.edges):,} edges")
    uncosted = graph.ops_without_cost()
    if uncosted:
        named = ", ".join(f"{name} ({count})" for name, count in list(uncosted.items())[:_NAMED])
        more = f" and {len(uncosted) - _NAMED} more ops" if len(uncosted) > _NAMED else ""
        say(f"without FLOPs and bytes: {sum(uncosted.values()):,} nodes: {named}{more}")
    for warning in graph.warnings:
        say(f"warning: {warning}")
    say(f"written: {args.out / 'tables'}, {args.out / 'graph'}")
    return 0
