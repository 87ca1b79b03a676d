"""`gnnperf data build FOLDER... --out DIR`: tables, graphs and features of many runs, through Dask.

Everything is written under its final name only when it is whole, and what is there is not made again. So a killed
worker loses the run it works on, which another worker takes over, and a killed build goes on where it stopped.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnperf.core import InputError, Subparsers, add_command, print_result, task
from gnnperf.trace import add_data_parsers

if TYPE_CHECKING:
    from distributed import Client

CACHE = ".cache"  # folder of graphs and features in the data set
RETRIES = 2  # of a run, where a worker ran out of memory or its disk failed
SHOWN = 20  # runs that are named when they cannot be used
SHORT = "tables, graphs and features of many runs, through Dask"
ABOUT = """\
Import every run below the folders into one data set, and build the graphs and features that training reads.

A folder has one folder of traces per run, or per run and repeat. Runs are divided among Dask workers: processes of this
machine, or those of a scheduler. Runs that are finished are skipped, so a build that was stopped goes on.

exit code: 0, or 2 where runs cannot be used; they are listed, and all others are built
"""
EXAMPLES = """\
gnnperf data build raw/monday raw/tuesday --out my_runs --workers 8
gnnperf data build raw --out /shared/my_runs --scheduler tcp://scheduler:8786        workers of a cluster
gnnperf train my_runs --set data.cache_dir=my_runs/.cache                           then
"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add `data` and its commands."""
    parser = add_command(add_data_parsers(subparsers), "build", SHORT, ABOUT, EXAMPLES, _build)
    parser.add_argument("folder", nargs="+", type=Path, metavar="FOLDER", help="one folder of traces per run")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the data set")
    parser.add_argument("--scheduler", metavar="URL", help="of Dask, whose workers see the same paths (default: none)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes on this machine (default: one per core)")


def _build(args: argparse.Namespace) -> None:
    raw = raw_runs(args.folder)
    with _client(args.scheduler, args.workers) as client:
        failed = build(raw, args.out, partial(mapped, client))
    done = {"runs": len(raw) - len(failed), "failed": failed, "out": str(args.out)}
    print_result(args, lambda: done, lambda: f"{done['runs']:,} of {len(raw):,} runs in {args.out}")
    if failed:
        lines = "".join(f"\n  {name}: {why}" for name, why in list(failed.items())[:SHOWN])
        raise InputError(f"{len(failed)} of {len(raw)} runs cannot be used:{lines}")


def raw_runs(folders: Iterable[Path]) -> dict[str, Path]:
    """Name in the data set -> folder of its traces."""
    from gnnperf.gnn.data.splits import recordings_below

    result: dict[str, Path] = {}
    for folder in folders:
        names = list(recordings_below(folder)) if folder.is_dir() else []
        if not names:
            raise InputError("holds no runs", where=str(folder), allowed="<run>/<repeat>/ or <run>/, with traces")
        if twice := sorted(result.keys() & set(names)):
            raise InputError(f"run {twice[0]!r} is in two folders", where=str(folder), remedy="rename one of them")
        result |= {name: folder / name for name in names}
    return result


def build(raw: Mapping[str, Path], out: Path, on_workers: Callable[..., list[Any]]) -> dict[str, str]:
    """Build all runs (name in the data set -> folder of its traces); returns those that cannot be used, and why.

    `on_workers` is `mapped` on some client.
    """
    from gnnperf.gnn.data.prepare import encode, opened
    from gnnperf.gnn.data.splits import drawn_axis
    from gnnperf.gnn.settings import DataConfig

    out = out.resolve()
    reasons = on_workers(partial(_imported, out=out), list(raw.items()), "importing")
    failed = {name: str(why) or type(why).__name__ for name, why in zip(raw, reasons, strict=True) if why is not None}
    if len(raw) - len(failed) > 1:
        config = DataConfig(path=str(out), axis=drawn_axis(out), cache_dir=str(out / CACHE))
        encode(config, *opened(config), mapped=lambda *work: list(map(_whole, on_workers(*work))))
    return failed


def _whole(result: Any) -> Any:
    if isinstance(result, BaseException):
        raise result
    return result


def _imported(named: tuple[str, Path], out: Path) -> InputError | None:
    """Write tables and typical step of a run; returns why it cannot be used."""
    from gnnperf.gnn.data.runs import read_step
    from gnnperf.trace import read_run, storage

    name, raw = named
    try:
        if not (out / name / storage.EVENTS_FILE).is_file():
            storage.write_run(read_run(raw), out / name)
        read_step(out, name, out / CACHE)
    except InputError as error:
        shutil.rmtree(out / name, ignore_errors=True)  # training would take it for a run
        return error
    return None


@contextmanager
def _client(scheduler: str | None, workers: int | None) -> Iterator[Client]:
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise InputError("Dask is not installed", where="gnnperf data build",
                         remedy="pip install 'gnnperf[dask]'") from error  # fmt: skip
    if scheduler is not None:
        try:
            client = Client(scheduler, timeout="10s")
        except (OSError, ValueError) as error:
            raise InputError("no Dask scheduler can be reached", where=f"--scheduler {scheduler[:200]}",
                             allowed="tcp://HOST:PORT") from error  # fmt: skip
        with client:
            yield client
        return
    here = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs="ERROR")
    with here, Client(here) as client:
        yield client


def mapped(client: Client, function: Callable[[Any], Any], items: Sequence[Any], what: str) -> list[Any]:
    """The function's results on Dask workers, in order; an exception where there is none.

    What a killed worker had is done again by another one.
    """
    from distributed import as_completed

    shared = client.submit(partial, function, pure=False)  # once per worker, not once per item
    futures = client.map(_called, items, function=shared, retries=RETRIES, pure=False)
    with task(what, len(items), "runs") as advance:
        for _ in as_completed(futures):
            advance(1.0)
    results = iter(client.gather([future for future in futures if future.status == "finished"]))
    return [next(results) if future.status == "finished" else future.exception() for future in futures]


def _called(item: Any, function: Callable[[Any], Any]) -> Any:
    """One thread per worker: Arrow's threads would be those of other workers."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    return function(item)
