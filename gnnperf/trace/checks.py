"""Do these ranks make one run? Errors for what cannot be one, warnings for what a user should know."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np

from gnnperf.core import DEVICE_KINDS, EventKind, InputError, schema
from gnnperf.trace.table import TraceTable

MAX_CLOCK_SKEW_NS = 60 * 10**9  # hosts' clocks differ by less; windows further apart are different runs
MAX_LISTED, LISTED_RECORDINGS = 16, 3


def check_run(tables: Sequence[TraceTable], where: str) -> tuple[str, ...]:
    """Warnings about these ranks; refuses a run without work, of several world sizes, or of windows far apart."""
    work = [str(k) for k in (EventKind.CPU_OP, EventKind.RUNTIME, *DEVICE_KINDS)]
    if not any(t.events["kind"].isin(work).any() for t in tables):
        raise InputError("holds marks and no work: no CPU op, no launch, no device event", where=where,
                         remedy="record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]")  # fmt: skip
    worlds = sorted({t.meta.world_size for t in tables if t.meta.world_size})
    if len(worlds) > 1:
        raise InputError(f"holds ranks of runs of {worlds[0]} and of {worlds[1]} ranks", where=where,
                         allowed="one run", remedy="give one run at a time")  # fmt: skip
    starts, ends = zip(*map(_window, tables), strict=True)
    gap = max(starts) - min(ends)
    if gap > MAX_CLOCK_SKEW_NS:
        raise InputError(f"holds ranks recorded {gap / 1e9:,.0f} s apart: different runs", where=where,
                         allowed="ranks whose windows overlap", remedy="give one run at a time")  # fmt: skip
    apart = [f"the ranks' windows do not overlap (by {gap / 1e6:,.1f} ms): their clocks differ"] if gap > 0 else []
    warnings = [*apart, *_missing(tables), *_lacks(tables)]
    warnings += [f"{t.meta.source_file}: {text}" for t in tables for text in t.meta.warnings]
    return tuple(warnings)


def one_recording(tables: Sequence[TraceTable], number: int | None, where: str) -> list[TraceTable]:
    """The tables of one recording: all where each rank has one file, else those of the number that is given.

    Files of one rank that do not overlap in time, as torch's handler writes them for each cycle of a schedule, are
    several recordings, numbered from 1 in order of time.

    Raises InputError: several recordings and no number, a number of none, or two files of one rank at one time.
    """
    files: dict[int, list[TraceTable]] = defaultdict(list)
    for table in sorted(tables, key=_window):
        files[table.meta.rank].append(table)
    for rank, of_rank in sorted(files.items()):
        for first, second in pairwise(of_rank):
            if _window(second)[0] < _window(first)[1]:
                names = f"{first.meta.source_file} and {second.meta.source_file}"
                unsure = "assumed" in (first.meta.rank_source, second.meta.rank_source)
                raise InputError(
                    f"{names} state no rank" if unsure else f"{names} are both rank {rank}",
                    where=where, allowed="one file per rank of one run",
                    remedy="name them rank_0.json, rank_1.json, ..." if unsure else "give one run at a time",
                )  # fmt: skip
    count = max(map(len, files.values()), default=1)
    recordings = [[f[i] for _, f in sorted(files.items()) if i < len(f)] for i in range(count)]
    chosen = 1 if number is None and count == 1 else number
    if chosen is None or not 1 <= chosen <= count:
        what = f"holds {count} recordings" if number is None else f"has no recording {number}"
        allowed = "; ".join(f"{i}: {_listed(one)}" for i, one in enumerate(recordings[:LISTED_RECORDINGS], 1))
        if count > LISTED_RECORDINGS:
            allowed += f"; later ones up to {count}"
        raise InputError(what, where=where, allowed=allowed,
                         remedy="choose one by --run NUMBER (predict.py: recording=NUMBER)")  # fmt: skip
    return recordings[chosen - 1]


def _window(table: TraceTable) -> tuple[int, int]:
    """Absolute begin and end."""
    begin, events = table.meta.base_time_ns, table.events
    return begin, begin + int((events["start_ns"] + events["duration_ns"]).max()) if len(events) else begin


def listed(numbers: Collection[int]) -> str:
    """The first numbers, in order."""
    return ", ".join(map(str, sorted(numbers)[:MAX_LISTED])) + (", ..." if len(numbers) > MAX_LISTED else "")


def _listed(tables: Sequence[TraceTable]) -> str:
    """When a recording begins, and its files."""
    names = tables[0].meta.source_file + (", ..." if len(tables) > 1 else "")
    begin = datetime.fromtimestamp(min(t.meta.base_time_ns for t in tables) // 10**9, UTC)
    return f"{begin:%Y-%m-%d %H:%M:%S} UTC ({len(tables)} {'rank' if len(tables) == 1 else 'ranks'}: {names})"


def _missing(tables: Sequence[TraceTable]) -> list[str]:
    world = max([t.meta.world_size or 0 for t in tables])
    ranks = {t.meta.rank for t in tables}
    if not world:
        return []
    missing = sorted(set(range(min(world, 100_000))) - ranks)
    warnings = []
    if missing:
        lacks = f"{len(missing)} of {world} ranks are missing: {listed(missing)}"
        warnings.append(f"{lacks}; waits for them cannot be explained")
    if max(ranks) >= world:
        warnings.append(f"rank {max(ranks)} is not below the stated world size {world}")
    return warnings


def step_rows(table: TraceTable) -> np.ndarray:
    """Rows of a rank's step marks in order of time, e.g. ProfilerStep#12."""
    names = table.events["name"]
    marks = np.array([text.startswith("ProfilerStep") for text in schema.categories_of(names)] + [False])
    is_annotation = (table.events["kind"] == EventKind.ANNOTATION).to_numpy()
    return np.flatnonzero(marks[schema.codes_of(names)] & is_annotation)


def _lacks(tables: Sequence[TraceTable]) -> list[str]:
    """Step marks and device work that some ranks lack."""
    total, warnings = len(tables), []
    if without := sum(not len(step_rows(t)) for t in tables):
        ranks = "no rank has" if without == total else f"{without} of {total} ranks have no"
        warnings.append(f"{ranks} step marks (ProfilerStep): the whole window is taken for one step")
    if idle := sum(not t.events["kind"].isin([str(k) for k in DEVICE_KINDS]).any() for t in tables):
        ranks = "there is" if idle == total else f"{idle} of {total} ranks have"
        warnings.append(f"{ranks} no device work: ops are taken to run on the CPU")
    return warnings
