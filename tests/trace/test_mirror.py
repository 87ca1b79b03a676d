"""Every public trace of the mirror either imports or is refused with one sentence."""

import csv
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from gnnperf.core import DEVICE_KINDS, InputError, schema
from gnnperf.trace import RunTrace, TraceTable, read_run, reader, selection
from gnnperf.trace.inspect import inspect
from gnnperf.trace.selection import in_steps, step_numbers

pytestmark = pytest.mark.mirror
TRACE_KINDS = ("kineto", "execution-trace", "archive", "execution-trace-protobuf-or-concatenated")
KINETO_IN_ARCHIVES = ("dlrm_kineto.tar.gz",)


def _catalog(mirror: Path) -> list[dict[str, str]]:
    with (mirror / "catalog.csv").open(newline="") as stream:
        return [row for row in csv.DictReader(stream) if row["kind"] in TRACE_KINDS]


def _check(table: TraceTable) -> None:
    events = table.events
    schema.validate(events, schema.EVENT_COLUMNS, table.meta.source_file)
    assert events["start_ns"].is_monotonic_increasing and events["start_ns"].iloc[0] == 0
    assert (events["duration_ns"] >= 0).all()
    device = events["kind"].isin([str(k) for k in DEVICE_KINDS]).to_numpy()
    assert (events.loc[device, "device"] >= 0).all() and (events.loc[device, "stream"] >= 0).all()
    assert events.loc[device, "link"].notna().all() and events.loc[~device, "link"].isna().all()
    assert (events.loc[~device & (events["kind"] != "sync"), "thread"] >= 0).all()
    for column in ("op_event", "launch_event", "forward_event"):
        assert events[column].between(-1, len(events) - 1).all()


def _read_or_refuse(path: Path) -> RunTrace | str:
    try:
        run = read_run(path)
    except InputError as error:
        assert len(str(error)) < 600 and "\n" not in str(error)
        return str(error)
    for table in run.tables:
        _check(table)
    inspect(run)
    return run


@pytest.mark.ci
@pytest.mark.parametrize("part", range(4))
def test_every_file_and_folder_imports_or_is_refused_with_one_sentence(
    mirror: Path, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of the folders. A folder first; its files one by one where it is no run of all of them.

    A file that is read by itself after its folder is decoded once.
    """
    for name in ("_assemble", "read_execution_trace"):
        monkeypatch.setattr(reader, name, lru_cache(maxsize=8)(getattr(reader, name)))
    folders: dict[Path, list[dict[str, str]]] = defaultdict(list)
    for row in _catalog(mirror):
        folders[(mirror / row["file"]).parent].append(row)
    assert len(folders) > 40
    for folder, rows in sorted(folders.items())[part::4]:
        kineto = [row["file"] for row in rows if row["kind"] == "kineto" or row["file"].endswith(KINETO_IN_ARCHIVES)]
        whole = _read_or_refuse(folder) if len(rows) > 1 else ""
        is_read = isinstance(whole, RunTrace) and len(whole.tables) == len(kineto)
        for row in rows:
            if row["file"] not in kineto or not is_read:
                outcome = _read_or_refuse(mirror / row["file"])
                assert isinstance(outcome, RunTrace) == (row["file"] in kineto), (row["file"], outcome)


def test_dlrm_on_eight_ranks_pairs_with_its_execution_traces(mirror: Path) -> None:
    folder = next(mirror.glob("facebookresearch+param/**/dlrm_kineto.tar.gz")).parent
    run = read_run([folder / "dlrm_kineto.tar.gz", folder / "dlrm_pytorch_et.tar.gz"])
    assert [t.meta.rank for t in run.tables] == list(range(8)) and run.world_size == 8
    for table in run.tables:
        assert table.meta.source_format == "execution_trace+kineto" and len(table.feeds) > 1000
        kernels = table.events[(table.events["kind"] == "kernel") & table.events["collective"].notna()]
        assert kernels["collective"].value_counts().to_dict() == {"all_to_all": 5, "all_reduce": 3}
        assert kernels["in_elements"].notna().all() and kernels["out_elements"].notna().all()


def test_megatron_gets_its_shapes_from_the_execution_trace(mirror: Path) -> None:
    run = read_run(next(mirror.glob("NVIDIA+Megatron-LM/tp2")))
    for table in run.tables:
        assert table.meta.has_shapes and table.meta.link_method == "external_id"
        kernels = table.events[(table.events["kind"] == "kernel") & table.events["collective"].notna()]
        assert len(kernels) == 13 and set(kernels["group"]) == {"[0,1]"} and set(kernels["group_size"]) == {2}


def test_nanoseconds_survive_in_files_of_absolute_microseconds(mirror: Path) -> None:
    path = next(mirror.glob("facebookresearch+HolisticTraceAnalysis/**/ns_resolution_trace/*.gz"))
    events = read_run(path).tables[0].events
    assert len(np.unique(events["start_ns"] % 1000)) > 900  # all the nanoseconds, not multiples of 250


@pytest.mark.parametrize("name", ["trace_diff/control", "ns_resolution_trace", "negative_queue_length_values_check"])
def test_a_step_that_is_chosen_is_that_of_the_whole_trace(mirror: Path, name: str) -> None:
    """Files list calls before or after the work that they launch; only its own is decoded."""
    path = next(mirror.glob(f"facebookresearch+HolisticTraceAnalysis/**/{name}/*.gz"))
    whole = read_run(path).tables[0]
    number = int(step_numbers(whole)[1])
    chosen = selection(steps=number)
    assert chosen.steps is not None
    expected, events = in_steps(whole, chosen.steps).events, read_run(path, chosen=chosen).tables[0].events
    columns = ["kind", "name", "start_ns", "duration_ns", "thread", "stream", "correlation", "launch_event"]
    assert expected[columns].astype(str).equals(events[columns].astype(str))
