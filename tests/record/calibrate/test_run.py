"""From readings to files, and lists of ops. The rounds' readings are made up, except in the last tests of `run`."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from gnnperf.core.errors import InputError
from gnnperf.hardware import load_cluster, load_device
from gnnperf.record.calibrate import run as run_module
from gnnperf.record.calibrate.job import Job
from gnnperf.record.calibrate.ops_file import COLUMNS, read_ops
from gnnperf.record.calibrate.point import Cache, CommPoint, Direction, HostPoint, OpPoint, Point, Reading
from gnnperf.record.calibrate.rounds import num_rounds, results, run_rounds
from gnnperf.record.calibrate.run import Ask, Machine, calibrate
from gnnperf.record.calibrate.suite import Lookup, Sizes, product
from tests.command import Command

SIZES = Sizes(products={"float32": (64,), "float64": (64,)}, stream_bytes=(1024, 131_072),
              lookups=(Lookup(1, 100, 4, 8, 2, 1.0),))  # fmt: skip
HERE = Machine("cpu", "cpu", "Toy CPU @ 1 GHz", cache_bytes=65_536, num_sms=1, clock_hz=1e9, memory_bytes=1e9,
               power_limit_w=None, count=2, fp8=False)  # fmt: skip
ASK = Ask(ranks=2, sizes=SIZES, message_bytes=(1000, 100_000))
NUM_ROUNDS = 5
FLOP_PER_US, BYTES_PER_US = 1e4, 5e3  # 10 GFLOP/s, 5 GB/s
LINK_US, LINK_BYTES_PER_US = 20.0, 1e3


def ideal_us(reading_of: OpPoint | CommPoint | HostPoint) -> float:
    if isinstance(reading_of, CommPoint):
        return LINK_US + reading_of.num_bytes / LINK_BYTES_PER_US
    if isinstance(reading_of, HostPoint):
        return 2.0
    return max((reading_of.flops or 0) / FLOP_PER_US, (reading_of.moved_bytes or 0) / BYTES_PER_US, 1.0)


def fake_rounds(seed: int) -> Callable[..., list[list[Reading]]]:
    """Rounds with 1 % of noise."""
    noise = random.Random(seed)

    def rounds(job: Job, minutes: float) -> list[list[Reading]]:
        points: list[Point] = [*job.points, *job.comm, *([HostPoint("smallest_op_host_us")] if job.host_costs else [])]
        return [
            [Reading(p, cache, True, ideal_us(p) * noise.lognormvariate(0, 0.01), 3) for p in points for cache in Cache]
            for _ in range(NUM_ROUNDS)
        ]

    return rounds


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_module, "run_rounds", fake_rounds(1))
    calibrate(tmp_path / "a", HERE, ASK, 1.0, False)
    return tmp_path / "a"


def test_the_device_loads_with_sustained_rates(folder: Path):
    device = load_device(folder / "device.yaml")
    assert (device.name, device.aliases, device.kind) == ("calibrated_toy_cpu_1_ghz", ("Toy CPU @ 1 GHz",), "cpu")
    assert device.flops_per_s["float32"] == pytest.approx(1e10, rel=0.03)
    assert device.memory_bandwidth_bytes_per_s == pytest.approx(5e9, rel=0.03)
    assert device.launch_floor_us == pytest.approx(2.0, rel=0.03)  # of the smallest op
    assert (device.sustained_flops_share, device.sustained_bandwidth_share) == (1.0, 1.0)
    rate = device.measured["flops_per_s.float32"]
    assert rate.low < rate.value < rate.high
    assert rate.low < 1e10 < rate.high
    assert device.host["smallest_op_host_us"].value == pytest.approx(2.0, rel=0.03)
    assert {"began", "ended", "versions.torch", "versions.python"} <= set(device.provenance)


def test_the_cluster_loads_with_the_link_that_was_measured(folder: Path):
    cluster = load_cluster(folder / "cluster.yaml", load_device(folder / "device.yaml"))
    assert cluster.intra.name == "lo"
    assert cluster.intra.latency_us == pytest.approx(LINK_US, rel=0.1)
    assert cluster.intra.bandwidth_bytes_per_s == pytest.approx(1e9, rel=0.1)
    assert cluster.inter.source.startswith("not measured: ")
    assert cluster.ranks_per_node == 2


def test_the_op_table_has_its_columns_and_their_meaning(folder: Path):
    table = pq.read_table(folder / "ops.parquet")
    assert table.column_names == list(COLUMNS)
    for field in table.schema:
        assert field.metadata is not None and field.metadata[b"meaning"]
    rows = table.to_pylist()
    backward = [row for row in rows if row["direction"] == "backward"]
    assert {json.loads(row["arguments"])["sparse"] for row in backward} == {True, False}
    assert {row["cache"] for row in rows} == {"warm", "flushed"}
    assert {row["kind"] for row in rows} == {"op", "collective", "host"}
    assert all(row["latency_low_us"] < row["latency_us"] < row["latency_high_us"] for row in rows)
    assert all(row["num_rounds"] == NUM_ROUNDS and row["device"] == HERE.label for row in rows)


def test_all_rounds_are_retained(folder: Path):
    retained = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
    assert {"clocks_before", "clocks_after", "versions"} <= set(retained["facts"])
    assert all(len(reading["round_medians_us"]) == NUM_ROUNDS for reading in retained["readings"])


def test_ops_of_a_list_give_a_table_and_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_module, "run_rounds", fake_rounds(1))
    calibrate(tmp_path / "ops", HERE, Ask(2, ops=(product(4, 4, 4, "float32"),)), 1.0, False)
    assert sorted(p.name for p in (tmp_path / "ops").iterdir()) == ["calibration.json", "ops.parquet"]
    assert pq.read_table(tmp_path / "ops" / "ops.parquet").num_rows == 2  # warm and flushed


def test_a_calibration_is_replaced_only_when_requested(folder: Path, monkeypatch: pytest.MonkeyPatch):
    before = (folder / "ops.parquet").read_bytes()
    monkeypatch.setattr(run_module, "run_rounds", fake_rounds(2))
    with pytest.raises(InputError, match="--overwrite"):
        calibrate(folder, HERE, ASK, 1.0, False)
    assert (folder / "ops.parquet").read_bytes() == before
    calibrate(folder, HERE, ASK, 1.0, True)
    assert (folder / "ops.parquet").read_bytes() != before
    assert [p.name for p in folder.parent.iterdir()] == ["a"]


def test_other_files_are_never_touched(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("x", encoding="utf-8")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        calibrate(tmp_path, HERE, ASK, 1.0, True)
    with pytest.raises(InputError, match="is a file"):
        calibrate(tmp_path / "thesis.tex", HERE, ASK, 1.0, True)


def test_a_failed_calibration_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object) -> list[list[Reading]]:
        raise InputError("aten::mm does not run")

    monkeypatch.setattr(run_module, "run_rounds", fails)
    with pytest.raises(InputError, match="does not run"):
        calibrate(tmp_path / "a", HERE, ASK, 1.0, False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "statement"),
    [(["--minutes", "0"], "--minutes"), (["--minutes", "nan"], "--minutes"), (["--ranks", "-1"], "--ranks")],
)
def test_bad_settings_are_named(tmp_path: Path, arguments: list[str], statement: str, command: Command):
    assert statement in command.refused("calibrate", "--out", tmp_path / "a", "--device", "cpu", *arguments)


def test_five_rounds_at_least_and_more_with_time():
    assert [num_rounds(minutes) for minutes in (0.01, 3.0, 5.0, 60.0)] == [5, 5, 7, 15]


def test_one_real_round_reads_ops_collectives_and_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A process for the round and two ranks: seconds, most of them spent loading torch."""
    from gnnperf.record.calibrate import rounds
    from gnnperf.record.calibrate.run import job_for

    monkeypatch.setattr(rounds, "num_rounds", lambda minutes: 1)
    ask = Ask(2, sizes=SIZES, message_bytes=(1024, 4096))
    outcome = results(2 * run_rounds(job_for(HERE, ask), 0.01))
    kinds = {type(result.way.point) for result in outcome}
    assert kinds == {OpPoint, CommPoint, HostPoint}
    assert {r.way.point.op for r in outcome if isinstance(r.way.point, CommPoint)} == {
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"}  # fmt: skip
    assert {r.way.point.quantity for r in outcome if isinstance(r.way.point, HostPoint)} >= {"smallest_op_host_us"}
    assert all(len(result.round_medians_us) == 2 and result.latency_us.low > 0 for result in outcome)


ADDMM = {"op": "aten::addmm", "shapes": [[8], [4, 6], [6, 8]], "dtype": "float32"}
BAG = {"op": "aten::embedding_bag", "shapes": [[100, 4], [32], [8]], "dtypes": ["float32", "int64", "int64"],
       "arguments": {"mode": 0, "sparse": True}, "direction": "backward", "skew": 4, "tables": 2}  # fmt: skip


def written(tmp_path: Path, *entries: object) -> Path:
    path = tmp_path / "ops.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


def test_lines_become_points_once_each(tmp_path: Path):
    first, second = read_ops(written(tmp_path, ADDMM, BAG, ADDMM))
    assert (first.op, first.shapes, first.dtypes) == ("aten::addmm", ((8,), (4, 6), (6, 8)), ("float32",) * 3)
    assert second.direction is Direction.BACKWARD
    assert (second.skew, second.tables, dict(second.arguments)) == (4.0, 2, {"mode": 0, "sparse": True})
    assert msgspec.json.decode(msgspec.json.encode(second), type=OpPoint) == second


@pytest.mark.parametrize(
    ("entry", "statement"),
    [
        ({**ADDMM, "op": "aten::adddmm"}, "no op named 'aten::adddmm'"),
        ({**ADDMM, "shapes": [[8]]}, "no overload for 1 tensors"),
        ({**ADDMM, "arguments": {"gamma": 1}}, "no overload"),
        ({**ADDMM, "dtype": "float33"}, "no dtype named 'float33'"),
        ({**ADDMM, "shapes": [[8.5]]}, "Expected `int`, got `float` - at `$.shapes[0][0]`"),
        ({**ADDMM, "colour": 1}, "unknown field `colour`"),
        ({**ADDMM, "direction": "sideways"}, "Invalid enum value 'sideways' - at `$.direction`"),
        ({**ADDMM, "tables": 0}, "Expected `int` >= 1 - at `$.tables`"),
        ({**BAG, "dtypes": ["float32"]}, "dtypes are"),
        *(({**ADDMM, "transposed": places}, "transposed") for places in ([True], [3], [-1], "0")),
        ([1], "Expected `object`"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, entry: object, statement: str):
    with pytest.raises(InputError) as refused:
        read_ops(written(tmp_path, ADDMM, entry))
    assert statement in str(refused.value)


def test_an_empty_or_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="names no op"):
        read_ops(written(tmp_path))
    with pytest.raises(InputError, match="cannot be read"):
        read_ops(tmp_path / "absent.jsonl")
