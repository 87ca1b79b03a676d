"""Steps of a few calls, written down one after the other, for rules to look at."""

from dataclasses import dataclass, field
from typing import Any

from gnnperf.core import NodeType, Relation, Segment
from gnnperf.graph import ExecutionGraph, Predictor, StepLabel
from gnnperf.hardware.spec import ClusterSpec, DeviceSpec, LinkSpec
from gnnperf.whatif.findings import Observed, measured_step
from tests.toys import make_graph

LINK = LinkSpec("pcie", 10e9, 0.0, sustained_bandwidth_share=1.0)  # 10 kB/us
DEVICE = DeviceSpec("gpu", "gpu", {"float16": 1e12, "float16_matrix": 1e14, "float32": 1e12}, 1e12, 1e6, 10, 1e9, 1e9)
CLUSTER = ClusterSpec("toy", DEVICE, LINK, LINK, LINK)


@dataclass
class Steps:
    """Adds nodes to a step; what a rank issues follows what it issued before."""

    num_ranks: int = 1
    rows: list[dict[str, Any]] = field(default_factory=list)
    edges: list[tuple[int, int, str]] = field(default_factory=list)
    last: dict[tuple[int, int], int] = field(default_factory=dict)  # (rank, thread 0 or stream + 1) -> node

    def _add(self, rank: int, lane: int, row: dict[str, Any]) -> int:
        self.rows.append({"rank": rank, **row})
        node = len(self.rows) - 1
        if (rank, lane) in self.last:
            self.edges.append((self.last[rank, lane], node, Relation.FOLLOWS))
        self.last[rank, lane] = node
        return node

    def host(self, us: float, rank: int = 0, segment: str = Segment.T1, **columns: Any) -> int:
        """A stretch of host time."""
        row = {"node_type": NodeType.HOST, "thread": 0, "segment": segment, "latency_us": us, "op_name": "aten::op"}
        return self._add(rank, 0, {**row, **columns})

    def call(self, host_us: float, kernel_us: float, rank: int = 0, stream: int = 0, **columns: Any) -> int:
        """A gap of no time, a launch and its kernel (or copy)."""
        op = {"op_name": columns.get("op_name", "aten::op"), "input_dims": columns.get("input_dims")}
        self.host(0.0, rank, **op)
        launch = self.host(host_us, rank, Segment.T4, **op)
        row = {"node_type": NodeType.COMPUTE, "device": rank, "stream": stream, "latency_us": kernel_us, **op}
        kernel = self._add(rank, stream + 1, {**row, **columns})
        self.edges.append((launch, kernel, Relation.LAUNCHES))
        return kernel

    def work(self, us: float, rank: int = 0, **columns: Any) -> int:
        """An op on a CPU rank, on its main thread."""
        return self._add(rank, 0, {"node_type": NodeType.COMPUTE, "thread": 0, "latency_us": us,
                                   "op_name": "aten::op", **columns})  # fmt: skip

    def transfer(self, us: float, kind: str = "all_reduce", stream: int = 0) -> int:
        """A collective of all ranks on their streams, waited for by each host."""
        columns = {"op_name": f"c10d::{kind}", "collective": kind, "group_size": self.num_ranks}
        part = {"node_type": NodeType.COMM, "stream": stream, "latency_us": 0.0, **columns}
        arrive = [self._add(r, stream + 1, {**part, "device": r, "segment": Segment.ARRIVE})
                  for r in range(self.num_ranks)]  # fmt: skip
        for rank, node in enumerate(arrive):
            if (rank, 0) in self.last:
                self.edges.append((self.last[rank, 0], node, Relation.FOLLOWS))
        self.rows.append({"rank": -1, "node_type": NodeType.COLLECTIVE, "latency_us": us, **columns})
        shared = len(self.rows) - 1
        for rank, node in enumerate(arrive):
            leaves = self._add(rank, stream + 1, {**part, "device": rank, "segment": Segment.EXIT})
            self.edges = [e for e in self.edges if e[:2] != (node, leaves)]
            self.edges += [(node, shared, Relation.JOINS), (shared, leaves, Relation.RELEASES)]
        return shared

    def wait(self, rank: int = 0, stream: int = 0) -> int:
        """The host waits for its stream."""
        node = self.host(0.0, rank)
        self.edges.append((self.last[rank, stream + 1], node, Relation.WAITS))
        return node

    def graph(self) -> ExecutionGraph:
        """All of it."""
        ranks = tuple(range(self.num_ranks))
        label = StepLabel(0, "ProfilerStep#0", None, 1.0, (0.0,) * self.num_ranks, (1.0,) * self.num_ranks)
        return make_graph(self.rows, self.edges, ranks=ranks, steps=(label,))

    def observed(self, predictor: Predictor | None = None, analytic_us: Any = None) -> Observed:
        """As measured."""
        return measured_step(self.graph(), 1, CLUSTER, predictor, analytic_us)
