"""`gnnperf import PATH... --out DIR`."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from gnnperf.core import Subparsers, add_command, counted, files, print_result, require, untrusted

if TYPE_CHECKING:
    from gnnperf.graph.execution_graph import ExecutionGraph
    from gnnperf.trace import RunTrace

_NAMED = 10
GRAPH = "graph"
PROCESS_BYTES = 300 * 2**20  # of the process before it reads
WINDOW = re.compile(r"steps_\d+-\d+")
ABOUT = "Read one run, build its execution graph, and write both as Parquet; other commands read the folder."
EXAMPLES = """\
gnnperf import trace.json.gz --out runs/imported
gnnperf import runs/trace_dir --ranks 0-7 --steps 3:6 --out runs/part
gnnperf import large.json.gz --memory-gib 2 --out runs/windows         in windows of some steps
"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the `import` command."""
    short = "trace file, directory or archive -> TraceTables and graph (Parquet)"
    parser = add_command(subparsers, "import", short, ABOUT, EXAMPLES, _import)
    parser.add_argument("path", nargs="+", type=Path, metavar="PATH", help="files of one run, a folder or an archive")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory to write: tables/ and graph/")
    parser.add_argument("--run", dest="recording", type=int, metavar="NUMBER", help="which of several in one folder")
    parser.add_argument("--ranks", metavar="LIST", help="only these, e.g. 0-7,12; the rest is not decoded")
    parser.add_argument("--steps", metavar="A:B", help="only these, by the numbers of their marks, B excluded; 3:6")
    parser.add_argument("--memory-gib", type=float, metavar="G", help="most memory to take (default: what is free); a "
                        "larger trace is imported in windows of some steps, into DIR/steps_A-B")  # fmt: skip


def _import(args: argparse.Namespace) -> None:
    from gnnperf.core import replacing_folder, reuse_memory, use_python_strings

    reuse_memory()
    files.hash_ahead(args.path)
    use_python_strings()
    from gnnperf.graph import storage as graph_storage
    from gnnperf.trace import read_run, selection, windowed
    from gnnperf.trace import storage as trace_storage

    chosen, gib = selection(args.ranks, args.steps), args.memory_gib
    require(gib is None or gib * 2**30 > PROCESS_BYTES, "--memory-gib", gib,
            f"more than {PROCESS_BYTES / 2**30:.2f}, which the process takes before it reads")  # fmt: skip
    with untrusted.reading(args.out, "cannot be written"):
        # The whole folder is replaced, so it may hold only what an earlier import wrote.
        windows = [p.name for p in args.out.iterdir() if WINDOW.fullmatch(p.name)] if args.out.is_dir() else []
        files.refuse_foreign(args.out, {trace_storage.IMPORTED, GRAPH, *windows})
        files.refuse_foreign(args.out / trace_storage.IMPORTED, trace_storage.FILES)
        files.refuse_foreign(args.out / GRAPH, graph_storage.FILES)
    budget_bytes = untrusted.available_bytes() if gib is None else gib * 2**30 - PROCESS_BYTES
    if len(args.path) == 1 and windowed(args.path[0], budget_bytes):
        windows = _import_windows(args.path[0], args.out, budget_bytes, chosen.steps)
        print_result(args, lambda: windows, lambda: "\n".join(
            f"written: {one['out']}: {counted(one['steps'], 'step')}, {counted(one['nodes'], 'node')}"
            for one in windows))  # fmt: skip
        return
    run = read_run(args.path if len(args.path) > 1 else args.path[0], recording=args.recording, chosen=chosen)
    with replacing_folder(args.out) as temporary:
        graph = _written(run, temporary)
    print_result(args, lambda: _document(run, graph, args.out), lambda: "\n".join(_lines(run, graph, args.out)))


def _document(run: "RunTrace", graph: "ExecutionGraph", out: Path) -> dict[str, object]:
    nodes = {str(kind): count for kind, count in graph.num_nodes_by_type().items()}
    return {"run": run.name, "ranks": list(graph.ranks), "world_size": run.world_size, "steps": len(graph.steps),
            "nodes": nodes, "edges": len(graph.edges), "without_cost": graph.ops_without_cost(),
            "warnings": list(graph.warnings), "out": str(out)}  # fmt: skip


def _lines(run: "RunTrace", graph: "ExecutionGraph", out: Path) -> Iterator[str]:
    from gnnperf.trace import storage

    yield f"{run.name}: {len(run.tables)} of {run.world_size} ranks, {counted(len(graph.steps), 'step')}"
    counts = ", ".join(f"{count:,} {kind}" for kind, count in graph.num_nodes_by_type().items() if count)
    yield f"{counted(graph.num_nodes, 'node')} ({counts}), {counted(len(graph.edges), 'edge')}"
    uncosted = graph.ops_without_cost()
    if uncosted:
        named = ", ".join(f"{name} ({count})" for name, count in list(uncosted.items())[:_NAMED])
        more = f" and {len(uncosted) - _NAMED} more ops" if len(uncosted) > _NAMED else ""
        yield f"without FLOPs and bytes: {counted(sum(uncosted.values()), 'node')}: {named}{more}"
    yield from (f"warning: {warning}" for warning in graph.warnings)
    yield f"written: {out / storage.IMPORTED}, {out / GRAPH}"


def _import_windows(path: Path, out: Path, budget_bytes: float, steps: range | None) -> list[dict[str, Any]]:
    """A file that is larger than memory: each window of some steps in a folder of its own."""
    from gnnperf.core import each, replacing_folder
    from gnnperf.trace import Selection, read_run, run_name, split

    windows = []
    with (
        replacing_folder(out) as temporary,  # makes the parent
        TemporaryDirectory(dir=out.resolve().parent, prefix=".windows-") as scratch,
    ):
        for window in each(split(path, Path(scratch), budget_bytes, steps), "importing", "windows"):
            name = window.file.parent.name
            chosen = Selection(steps=window.steps if steps is not None else None)
            (temporary / name).mkdir()
            graph = _written(read_run(window.file, name=f"{run_name(path)}/{name}", chosen=chosen), temporary / name)
            window.file.unlink()
            windows.append({"out": str(out / name), "steps": len(graph.steps), "nodes": graph.num_nodes})
    return windows


def _written(run: "RunTrace", folder: Path) -> "ExecutionGraph":
    """The graph of a run, after it and the tables are in the folder; a copy of the process writes the tables."""
    from contextlib import ExitStack
    from functools import partial

    from gnnperf.core import copyable_cores, in_copy, return_freed_memory, task
    from gnnperf.graph import storage as graph_storage
    from gnnperf.graph.build import build_graph
    from gnnperf.trace import storage as trace_storage

    for name in (trace_storage.IMPORTED, GRAPH):
        (folder / name).mkdir()
    write = partial(trace_storage.write_files, run, folder / trace_storage.IMPORTED)
    return_freed_memory()
    with task("writing", 2, "folders") as advance, ExitStack() as copies:
        written = copies.enter_context(in_copy(write)) if copyable_cores() > 1 else write
        graph = build_graph(run)
        graph_storage.write_files(graph, folder / GRAPH)
        advance(1.0)
        written()
        advance(1.0)
    return graph
