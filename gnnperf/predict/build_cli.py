"""`gnnperf data build FOLDER --out DIR`: a data set of many runs on disk, made by Dask workers."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from gnnperf.core import Failed, InputError, Subparsers, add_command, attempted, counted, print_result, require, task
from gnnperf.predict.train_cli import key_names, keys_of
from gnnperf.trace import add_data_parsers

if TYPE_CHECKING:
    from distributed import Client

MAX_WORKERS, MAX_NAMED, WAIT_S = 1024, 20, 30
OWN_KEYS = {"data.path": "FOLDER", "data.cache_dir": "--out"}
ABOUT = """\
Build typical steps and features of every recording below FOLDER, which training then reads from disk.

Recordings are divided among Dask workers: processes of this machine, or those of a scheduler, which see the same paths.
What is there already is not made again, so a build that was stopped goes on. FOLDER stays as it is.

exit code: 0, or 2 where recordings cannot be used; they are listed, and all others are built. Where disk, memory or
workers fail, 2 too: the build is not finished, and the command may be repeated
"""
EXAMPLES = """\
gnnperf data build raw --out built --workers 8
gnnperf data build raw --out /shared/built --scheduler tcp://scheduler:8786      workers of a cluster
gnnperf train built                                                               then
"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add `data` and its commands."""
    short = "steps and features of many runs, through Dask"
    parser = add_command(add_data_parsers(subparsers), "build", short, ABOUT, EXAMPLES, _build)
    parser.add_argument("folder", metavar="FOLDER", help="one folder per run, or per run and repeat")
    parser.add_argument("--out", required=True, metavar="DIR", help="a new folder, or one that is to be finished")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--workers", type=int, metavar="N", help="processes on this machine (default: one per core)")
    where.add_argument("--scheduler", metavar="URL", help="of Dask, as tcp://HOST:PORT")
    parser.add_argument("--set", dest="keys", action="append", default=[], metavar="KEY=VALUE",
                        help="any key of train.py that features depend on; may be repeated")  # fmt: skip


def _build(args: argparse.Namespace) -> None:
    if args.workers is not None:
        require(1 <= args.workers <= MAX_WORKERS, "--workers", args.workers, f"1 to {MAX_WORKERS}")
    for key in sorted(OWN_KEYS.keys() & key_names(args.keys)):
        raise InputError("is another argument's", where=f"--set {key}", remedy=f"give it as {OWN_KEYS[key]}")
    from gnnperf.gnn import build_data
    from gnnperf.predict import EntryConfig, composed

    paths = {"data.path": args.folder, "data.cache_dir": args.out}
    config = composed("train", EntryConfig, *keys_of(args.folder), *args.keys, **paths)
    given = config.device_spec(), config.cluster_spec()
    with _client(args.scheduler, args.workers) as client:
        split, failed = build_data(config.data, given, config.model.num_layers, partial(_mapped, client))
    count = len((*split.train, *split.val, *split.test))
    done = {"recordings": count, "failed": failed, "out": args.out}
    print_result(args, lambda: done, lambda: f"{counted(count, 'recording')} in {args.out}")
    if failed:
        lines = "".join(f"\n  {name}: {why}" for name, why in list(failed.items())[:MAX_NAMED])
        raise InputError(f"{counted(len(failed), 'recording')} cannot be used:{lines}", where=args.folder)


@contextmanager
def _client(scheduler: str | None, workers: int | None) -> "Iterator[Client]":
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise InputError("Dask is not installed", where="gnnperf data build",
                         remedy="pip install 'gnnperf[dask]'") from error  # fmt: skip
    with ExitStack() as stack:
        local = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0",
                 "silence_logs": "ERROR"}  # fmt: skip
        address = scheduler or stack.enter_context(LocalCluster(n_workers=workers, **local))
        try:
            client = Client(address, timeout="10s")
        except (OSError, ValueError) as error:
            raise InputError("no Dask scheduler can be reached", where=f"--scheduler {scheduler}"[:200],
                             allowed="tcp://HOST:PORT") from error  # fmt: skip
        stack.enter_context(client)
        try:
            client.wait_for_workers(1, timeout=WAIT_S)
        except TimeoutError as error:
            raise InputError(f"no Dask worker within {WAIT_S} s", where=str(client.scheduler.address)[:200],
                             remedy="start workers of this scheduler") from error  # fmt: skip
        yield client


def _mapped(client: "Client", function: Callable[[Any], Any], items: Sequence[Any], what: str) -> list[Any]:
    """`attempted` on Dask workers; what a killed worker had is done again by another one."""
    from distributed import as_completed

    shared = client.submit(partial, function, pure=False)  # goes to each worker once, not with each item
    futures = client.map(attempted, items, function=shared, pure=False)
    with task(what, len(items), "runs") as advance:
        for _ in as_completed(futures):
            advance(1.0)
    done = iter(client.gather([future for future in futures if future.status == "finished"]))
    reasons = (str(one.exception() if one.status == "error" else one.status)[:200] for one in futures)
    return [next(done) if one.status == "finished" else Failed(why) for one, why in zip(futures, reasons, strict=True)]
