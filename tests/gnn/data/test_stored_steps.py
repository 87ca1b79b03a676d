"""Typical steps of recordings on disk: read instead of made, made anew where damaged, never of other files."""

from pathlib import Path
from unittest.mock import MagicMock

import pandas as pd
import pytest

from gnnperf.core.errors import InputError
from gnnperf.gnn.data import runs
from gnnperf.gnn.data.cache import content_digest
from gnnperf.gnn.data.runs import Recorded, RunStep, typical
from gnnperf.hardware import load_device
from tests.trace import kineto_files as files


def recorded(root: Path, *kernel_us: int) -> Recorded:
    """A recording `a` with one op per step, whose kernels take `kernel_us`, and what reads it."""
    events = []
    for step, duration_us in enumerate(kernel_us):
        at = step * files.STEP_US
        events += [files.host(f"ProfilerStep#{step}", at, files.STEP_US - 1, "user_annotation"),
                   files.host("aten::mm", at + 10, 50), files.call("cudaLaunchKernel", at + 20, 5, at + 10),
                   files.device("gemm", at + 30, duration_us, at + 10)]  # fmt: skip
    files.write(root / "a" / "rank_0.json", files.document(events, 0, 4))
    return Recorded({"a": root}, root / "cache", (None, None))


def kernel_us(step: RunStep) -> list[float]:
    nodes = step.graph.nodes
    return nodes["latency_us"][nodes["node_type"] == "compute"].tolist()


def test_a_step_that_is_read_is_the_one_that_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = recorded(tmp_path, 30, 40)
    made, first = typical(read("a")), read.typical("a")
    for table in ("nodes", "edges"):
        pd.testing.assert_frame_equal(getattr(first[1].graph, table), getattr(read.typical("a")[1].graph, table))
    monkeypatch.setattr(runs, "read_run", None)  # would fail if it were called
    for key, step in (first, read.typical("a")):
        assert key == first[0] and kernel_us(step) == [35.0]  # mean of 30 and 40
        assert content_digest(vars(step)) == content_digest(vars(made))
        assert step.graph.cross_step is not None and step.graph.fingerprint == made.graph.fingerprint != ""


@pytest.mark.parametrize("name", ["nodes.parquet", "edges.parquet", "labels.npz"])
def test_a_damaged_step_is_made_anew(tmp_path: Path, name: str) -> None:
    read = recorded(tmp_path, 30, 40)
    key, step = read.typical("a")
    path = tmp_path / "cache" / "steps" / key / name
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b""):
        path.write_bytes(content)
        assert content_digest(vars(read.typical("a")[1])) == content_digest(vars(step))
        assert path.stat().st_size == len(whole)
    path.unlink()
    assert kernel_us(read.typical("a")[1]) == [35.0] and path.is_file()
    assert [one.name for one in (tmp_path / "cache" / "steps").iterdir()] == [key]


def test_another_recording_or_device_has_a_step_of_its_own(tmp_path: Path) -> None:
    first, _ = recorded(tmp_path, 30, 40).typical("a")
    read = recorded(tmp_path, 30, 60)  # in its place
    changed, step = read.typical("a")
    assert kernel_us(step) == [45.0] and changed != first
    on_cpu = Recorded(read.roots, read.cache_dir, (load_device("cpu_generic"), None)).typical("a")
    assert on_cpu[1].cluster.device.name == "cpu_generic" and step.cluster.device.kind == "gpu"
    assert len({first, changed, on_cpu[0]}) == len(list((tmp_path / "cache" / "steps").iterdir())) == 3


def test_a_recording_that_cannot_be_read_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = recorded(tmp_path, 30, 40)
    monkeypatch.setattr(runs, "load_graph", MagicMock(side_effect=InputError("no trace")))
    with pytest.raises(InputError, match="no trace"):
        read.typical("a")
    assert not (tmp_path / "cache").exists()
