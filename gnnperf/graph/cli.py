"""`gnnperf import PATH... --out DIR`."""

from __future__ import annotations

import argparse
from pathlib import Path

from gnnperf.core import InputError, untrusted

_NAMED = 10
TABLES, GRAPH = "tables", "graph"


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `import` command."""
    parser = subparsers.add_parser("import", help="trace file, directory or archive -> TraceTables and graph (Parquet)")
    parser.add_argument("path", nargs="+", type=Path, help="files of ONE run: rank files, a directory, an archive")
    parser.add_argument("--out", required=True, type=Path, help="directory to write: tables/ and graph/")
    parser.add_argument("--run", dest="recording", type=int, metavar="NUMBER", help="which of several in one folder")
    parser.add_argument("--ranks", metavar="LIST", help="only these, e.g. 0-7,12; the rest is not decoded")
    parser.add_argument("--steps", metavar="A:B", help="only these, by the numbers of their marks, B excluded; 3:6")
    parser.set_defaults(run=_import)


def _import(args: argparse.Namespace) -> int:
    from gnnperf.core import replacing_folder, say, task
    from gnnperf.graph import storage as graph_storage
    from gnnperf.graph.build import build_graph
    from gnnperf.trace import read_run, selection
    from gnnperf.trace import storage as trace_storage

    chosen = selection(args.ranks, args.steps)
    with untrusted.reading(args.out, "cannot be written"):
        # The whole folder is replaced, so it may hold only what an earlier import wrote.
        if args.out.is_dir() and (others := sorted({p.name for p in args.out.iterdir()} - {TABLES, GRAPH})):
            raise InputError(f"holds other files ({others[0]!r})", where=str(args.out),
                             allowed="a new or empty directory, or an earlier import",
                             remedy="choose another --out")  # fmt: skip
        trace_storage.refuse_foreign(args.out / TABLES)
        graph_storage.refuse_foreign(args.out / GRAPH)
    run = read_run(args.path if len(args.path) > 1 else args.path[0], recording=args.recording, chosen=chosen)
    graph = build_graph(run)
    with task("writing", 2, "folders") as advance, replacing_folder(args.out) as temporary:
        for name, storage, content in ((TABLES, trace_storage, run), (GRAPH, graph_storage, graph)):
            (temporary / name).mkdir()
            storage.write_files(content, temporary / name)
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
    say(f"written: {args.out / TABLES}, {args.out / GRAPH}")
    return 0
