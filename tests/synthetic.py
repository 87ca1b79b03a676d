"""A made-up data set of toy runs whose latencies follow a rule that a network can learn."""

import atexit
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from toys import two_rank_graph

from gnnperf.gnn.data.prepare import DataConfig, Earlier, PreparedData, prepare
from gnnperf.gnn.data.runs import RunGraph
from gnnperf.gnn.data.splits import Split
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware.spec import ClusterSpec, DeviceSpec, LinkSpec

SPLIT = Split("run", train=("a", "b", "c", "d"), val=("e",), test=("f",))


def cluster() -> ClusterSpec:
    """A V100 in round numbers."""
    device = DeviceSpec("v100", "gpu", {"float32": 15e12}, 900e9, 6e6, 80, 1.5e9, 32e9)
    link = LinkSpec("nvlink", 100e9, 2.0)
    return ClusterSpec("toy", device, link, link, link)


@cache
def toy_run(seed: int) -> ExecutionGraph:
    """The two-rank toy with gemms of another size that take a fixed multiple of their FLOPs, plus 2 % noise."""
    graph, draw = two_rank_graph(), np.random.default_rng(seed)
    size = 256 * int(draw.integers(1, 9))
    nodes = graph.nodes.copy()
    gemm = (nodes["node_type"] == "compute").to_numpy()
    nodes.loc[gemm, "flops"] = 2.0 * size**3
    nodes.loc[gemm, "bytes"] = 12.0 * size**2
    nodes["input_dims"] = nodes["input_dims"].astype(object).where(~gemm, f"[[{size},{size}],[{size},{size}]]")
    nodes["input_dims"] = nodes["input_dims"].astype("category")
    nodes.loc[gemm, "latency_us"] = 3.0 * 2.0 * size**3 / 15e6
    nodes["latency_us"] *= np.exp(0.02 * draw.standard_normal(len(nodes)))
    nodes["content_key"] = np.arange(len(nodes))
    return replace(graph, name=f"toy{seed}", nodes=nodes, fingerprint=f"toy{seed}").validate()


def read(run: str) -> RunGraph:
    """Run "a" to "f"."""
    return RunGraph(run, toy_run(ord(run)), cluster())


def prepared(tmp_path: Path, split: Split = SPLIT, earlier: Earlier | None = None) -> PreparedData:
    """The data set, cached below `tmp_path`."""
    return prepare(DataConfig(cache_dir=str(tmp_path)), split, read, earlier)


@cache
def toy_data() -> PreparedData:
    """The data set, prepared once for all tests of a process; no test changes it."""
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder)
    return prepared(folder)


def load_toys(patch: pytest.MonkeyPatch, cache: Path) -> None:
    """Let train.py have the data set, whichever it asks for."""

    def loaded(config: object, device: object, links: object, earlier: Earlier | None = None, mapped: object = None
               ) -> PreparedData:  # fmt: skip
        return prepared(cache, earlier=earlier) if earlier else toy_data()

    for place in ("gnnperf.gnn.load_data", "gnnperf.gnn.data.prepare.load_data"):  # the export, and its module
        patch.setattr(place, loaded)
