"""read_run: files, directories and archives -> RunTrace, one rank in memory at a time."""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pandas as pd

from gnnperf.core import InputError, in_copies, printable, schema, task, untrusted
from gnnperf.trace import execution_trace, kineto, linking
from gnnperf.trace.assembly import Assembled, assemble, assemble_events, expect
from gnnperf.trace.checks import check_run, listed, one_recording
from gnnperf.trace.collectives import add_collectives
from gnnperf.trace.event_names import with_public_names
from gnnperf.trace.execution_trace import ExecutionTrace, is_execution_trace, read_execution_trace, refuse_chakra
from gnnperf.trace.groups import name_groups
from gnnperf.trace.metadata import Distributed, read_devices, read_distributed
from gnnperf.trace.public_texts import file_name, rank_from_name, run_name
from gnnperf.trace.run_cards import card_of, imported, is_saved
from gnnperf.trace.selection import EVERYTHING, Selection, in_steps
from gnnperf.trace.table import CARD, RunTrace, TraceMeta, TraceTable
from gnnperf.trace.trace_sources import FORMS, LARGE_BYTES, PEEK_BYTES, Source, is_archive, skipped, sources
from gnnperf.trace.windows import of_steps

# The bytes of one Kineto file -> TraceTable: the pipeline as a table of contents.

# What a Kineto file states before its events.
STATED_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,8})\s*[,}]')
WHOLE = re.compile(rb"\s*\{.*\}\s*", re.DOTALL)  # an object
MIN_MATCHED_SHARE = 0.5  # below it, an execution trace is of another run
SHARED_BYTES = 2**20  # of all files together, which are worth a copy of the process
COPIED_SIZES = 4  # of packed files: memory of their tables while a copy sends its share
WELL_MATCHED = 0.98  # fewer matched ops are worth a warning


def import_kineto(
    table: Assembled, source: Source, rank: int, rank_source: str, distributed: Distributed,
    execution_trace: ExecutionTrace | None,
) -> TraceTable:  # fmt: skip
    """One rank's table. An execution trace of the same rank completes shapes and states which op feeds which."""
    table, feeds, remarks = _with_execution_trace(table, execution_trace)
    with ThreadPoolExecutor(max_workers=1) as thread:
        digest = thread.submit(source.sha256)
        links = linking.link(table)
        columns = table.columns | {
            "op_event": links.op_event,
            "launch_event": links.launch_event,
            "link": schema.categorical(links.link, [str(x) for x in linking.LINKS]),
            "forward_event": linking.forward_events(table),
        }
        columns |= add_collectives(table, links, replace(distributed, rank=rank))
    events = pd.DataFrame({c.name: columns[c.name] for c in schema.EVENT_COLUMNS}, copy=False)
    dropped = [f"{count} {reason} were left out" for reason, count in sorted(table.dropped.items()) if count]
    if rank_source == "assumed" and (distributed.world_size or 1) > 1:
        remarks = [f"neither the file nor its name states a rank; rank {rank} is assumed", *remarks]
    source_format = "kineto" if feeds is None else "execution_trace+kineto"
    source_format = source_format if source.database is None else "nsight_systems"
    meta = TraceMeta(
        rank=rank, rank_source=rank_source, world_size=distributed.world_size,
        source_format=source_format, source_file=source.name,
        source_sha256=digest.result(), base_time_ns=table.base_ns,
        devices=read_devices(table.head.deviceProperties), backend=distributed.backend, link_method=str(links.method),
        has_shapes=bool((table.columns["input_dims"].codes >= 0).any()),
        warnings=(*dropped, *linking.repeated_ids(table), *remarks),
    )  # fmt: skip
    return TraceTable(meta, events) if feeds is None else TraceTable(meta, events, feeds)


def _with_execution_trace(
    table: Assembled, trace: ExecutionTrace | None
) -> tuple[Assembled, pd.DataFrame | None, list[str]]:
    """Shapes and feeds of the execution trace, if there is one and it is of this run."""
    if trace is None:
        return table, None, []
    matched = execution_trace.match(table, trace)
    if matched.share < MIN_MATCHED_SHARE:
        return table, None, [f"execution trace {trace.name} is not used, because {matched.share:.1%} of its ops were "
                             "matched: it is of another run, or of a step whose ops were captured before"]  # fmt: skip
    sentences = f"{matched.share:.1%} of the ops of execution trace {trace.name} were matched by {matched.key}"
    feeds = execution_trace.feeds(trace, matched)
    filled = execution_trace.fill_shapes(table, trace, matched)
    return filled, feeds, [sentences] if matched.share < WELL_MATCHED else []


@dataclass
class _Result:
    """What a first look at the files finds, before any Kineto file is decoded."""

    kineto: list[str] = field(default_factory=list)  # paths, in order
    traces: list[tuple[int | None, ExecutionTrace]] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)  # Kineto files whose ranks are not chosen: path -> rank
    refused: list[InputError] = field(default_factory=list)


def read_run(
    path: Path | list[Path], *, name: str | None = None, recording: int | None = None, chosen: Selection = EVERYTHING
) -> RunTrace:
    """All ranks of one run.

    Args:
        path: a Kineto file, a directory of rank files, an archive, a directory of saved tables; or a list of these
            that together are one run (Kineto files and execution traces are paired by rank).
        name: the run's name; by default the file's or folder's.
        recording: which one, from 1 in order of time, where each rank has several files.
        chosen: ranks and steps; the rest is not decoded.

    Raises:
        InputError: nothing that can be read, or more than one run.
    """
    given = [Path(p) for p in (path if isinstance(path, (list, tuple)) else [path])]
    if not given:
        raise InputError("no path is given", allowed=FORMS)
    where = str(given[0]) if len(given) == 1 else f"{given[0]} and {len(given) - 1} more"
    with untrusted.reading(where):
        paths = [imported(p) for p in given]
        tables, groups, remarks = _read_tables(paths, where, chosen)
        tables = one_recording(tables, recording, where)  # by the files' own names, which errors may show
        if chosen.steps is not None:
            tables = [in_steps(table, chosen.steps) for table in tables]
        tables = with_public_names(name_groups(tables, groups) if groups else tables)
        warnings = (*remarks, *check_run(tables, where))
        return RunTrace(printable(name or "") or run_name(given[0]), tuple(tables), card_of(paths), warnings)


def _read_tables(
    paths: Sequence[Path], where: str, chosen: Selection
) -> tuple[list[TraceTable], dict[int, tuple[tuple[int, ...], ...]], list[str]]:
    """All tables, the ranks of each process group by rank of the file that states them, and remarks."""
    tables: list[TraceTable] = []
    for saved in [p for p in paths if is_saved(p)]:
        from gnnperf.trace.storage import read_tables  # pyarrow is not needed to read a trace file

        tables += read_tables(saved, chosen.has_rank)
    others = [p for p in paths if not is_saved(p)]
    result = _first_look(others, chosen)
    _refuse_without_kineto(result, where, has_tables=bool(tables) or not others)
    folders: dict[int, str] = {}
    groups: dict[int, tuple[tuple[int, ...], ...]] = {}
    for source, (table, distributed) in _read_files(others, result, chosen.steps):
        rank = table.meta.rank
        if not chosen.has_rank(rank):
            result.left_out[source.path] = rank
            continue
        if folders.setdefault(rank, source.folder) != source.folder:  # named, so that the user can choose
            first, second = folders[rank] or ".", source.folder or "."
            raise InputError(f"holds several runs: {first!r}, {second!r} both have a rank {rank}", where=where,
                             allowed="one run", remedy="give the folder of one run")  # fmt: skip
        tables.append(table)
        groups[rank] = tuple((distributed.group_ranks or {}).values())
    if not tables:
        there = listed(set(result.left_out.values()))
        raise InputError("holds none of these ranks", where=where, remedy="see `gnnperf inspect`",
                         allowed=there and f"rank {there}")  # fmt: skip
    return tables, groups, _unused(result, tables)


def _read_files(
    paths: Sequence[Path], result: _Result, steps: range | None
) -> Iterator[tuple[Source, tuple[TraceTable, Distributed]]]:
    """The table of each file; copies of this process share many files, unless they are large or in an archive."""
    read = partial(_read_kineto, result=result, steps=steps)
    wanted = (s for s in _all_sources(paths) if s.path in result.kineto and s.path not in result.left_out)
    files = list(wanted) if not any(map(is_archive, paths)) else []
    sizes = [source.content.stat().st_size for source in files if isinstance(source.content, Path)]
    fits = untrusted.available_bytes() > COPIED_SIZES * sum(sizes)
    if len(sizes) > 1 and sum(sizes) >= SHARED_BYTES and max(sizes) < LARGE_BYTES and fits:
        expect(sum(sizes))
        for source in files:  # copies have the hashes then, and no other thread computes one when they are made
            source.sha256()
        yield from zip(files, in_copies(read, files, "reading the trace", unit="files"), strict=True)
        return
    with task("reading the trace", len(result.kineto), "files") as advance:
        for source in files or wanted:
            yield source, read(source)
            advance(1.0)


def _all_sources(paths: Sequence[Path]) -> Iterator[Source]:
    for path in paths:
        for source in sources(path):
            if source.name != CARD:
                yield source


def _first_look(paths: Sequence[Path], chosen: Selection) -> _Result:
    """Sort the files by their first bytes; read the execution traces, which are small."""
    result = _Result(refused=[error for path in paths for error in skipped(path)])
    for source in _all_sources(paths):
        start, named = source.peek(), rank_from_name(source.path)
        try:
            with untrusted.reading(source.path):
                refuse_chakra(start, source.path)
                if is_execution_trace(start):
                    if named is not None and not chosen.has_rank(named):
                        continue
                    head = kineto.read_head(source.unpack(), source.path)
                    trace = read_execution_trace(head, file_name(source.name))
                    result.traces.append((named, trace))
                elif len(start) < PEEK_BYTES and WHOLE.fullmatch(start) and b'"traceEvents"' not in start:
                    raise InputError("is JSON but not a trace", where=source.path, allowed="a file with traceEvents")
                else:
                    result.kineto.append(source.path)
                    stated = STATED_RANK.search(start)
                    rank = int(stated[1]) if stated else named
                    if rank is not None and not chosen.has_rank(rank):
                        result.left_out[source.path] = rank
        except InputError as error:
            result.refused.append(error)
    return result


def _refuse_without_kineto(result: _Result, where: str, *, has_tables: bool) -> None:
    if result.kineto or has_tables:
        return
    if result.traces:
        raise InputError("holds an execution trace and no Kineto file; an execution trace has no times", where=where,
                         remedy="give the Kineto file of the same run too: both paths, or one folder")  # fmt: skip
    if result.refused:
        raise result.refused[0]
    raise InputError("holds no trace file", where=where, allowed=FORMS)


def _read_kineto(source: Source, result: _Result, steps: range | None) -> tuple[TraceTable, Distributed]:
    assembled = _assemble(source, steps)
    distributed = read_distributed(assembled.head.distributedInfo)
    rank, rank_source = distributed.rank, "metadata"
    if rank is None:
        rank, rank_source = rank_from_name(source.path), "file name"
    if rank is None:
        rank = _differing_number(source.path, result.kineto)
    if rank is None:
        rank, rank_source = 0, "assumed"
    # The execution trace of this rank by name; or the only one there is, for the only Kineto file there is.
    named = [trace for stated, trace in result.traces if stated == rank]
    if len(named) > 1:
        raise InputError(f"{named[0].name} and {named[1].name} are both execution traces of rank {rank}",
                         allowed="one per rank")  # fmt: skip
    lone = result.traces[0][1] if len(result.traces) == len(result.kineto) == 1 else None
    trace = named[0] if named else lone
    return import_kineto(assembled, source, rank, rank_source, distributed, trace), distributed


def _assemble(source: Source, steps: range | None) -> Assembled:
    if source.database is None:
        # No name here holds the text, so that it is freed once it is decoded.
        return assemble(source.unpack() if steps is None else of_steps(bytes(source.unpack()), steps), source.path)
    from gnnperf.trace.nsight import Reader  # sqlite3 is not needed to read a trace file

    reader = Reader(source.database, source.path)
    return assemble_events(reader, reader.stretches(), source.path)


def _differing_number(path: str, others: list[str]) -> int | None:
    """The one number in which the paths of several rank files differ."""
    split = [re.split(r"(\d+)", p) for p in others]
    if len(others) < 2 or len({len(s) for s in split}) > 1:
        return None
    differing = [i for i in range(len(split[0])) if len({s[i] for s in split}) > 1]
    if len(differing) != 1 or differing[0] % 2 == 0:
        return None
    number = int(re.split(r"(\d+)", path)[differing[0]])
    return number if number < 10**6 else None


def _unused(result: _Result, tables: Sequence[TraceTable]) -> list[str]:
    ranks = {t.meta.rank for t in tables}
    paired = len(result.traces) == len(result.kineto) == 1
    lone = [f"execution trace {trace.name} has no Kineto file of its rank and is not used"
            for rank, trace in result.traces if not paired and rank not in ranks]  # fmt: skip
    # Warnings go into reports, and folders name people.
    skipped = [InputError(error.what, where=file_name(error.where), allowed=error.allowed, remedy=error.remedy)
               for error in result.refused]  # fmt: skip
    return lone + [f"skipped: {error}" for error in skipped]
