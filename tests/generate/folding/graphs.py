"""Random programs that all ranks of a grid run, as graphs of all of them: a thread that launches, a stream, transfers.

rank = column + columns x row         row group: ranks of a row       column group: every `columns`-th rank

host     [launch 1]-[launch 1]-[launch 1]
stream       `[op]------------->[op]            an awaited sum holds the ops after it, another one only its own stream
sums                `arrive>[c]>exit
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from toys import make_graph

from gnnperf.core import NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware.placement import progression

LAUNCH_US = 1.0


@dataclass(frozen=True)
class Work:
    """A kernel of so many us."""

    us: float


@dataclass(frozen=True)
class Meeting:
    """A sum over `group` (row, column, all), or a ring of messages (ring) along the rows."""

    group: str
    us: float
    awaited: bool = True


Item = Work | Meeting


@dataclass
class Drawn:
    """A graph on the way."""

    rows: list[dict[str, object]] = field(default_factory=list)
    edges: list[tuple[int, int, str]] = field(default_factory=list)
    met: dict[tuple[object, ...], list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, **row: object) -> int:
        self.rows.append(row)
        return len(self.rows) - 1

    def edge(self, src: int | None, dst: int, relation: Relation) -> None:
        if src is not None:
            self.edges.append((src, dst, relation))


def grid(rows: int, columns: int, program: list[Item], extra: dict[int, list[Item]] | None = None) -> ExecutionGraph:
    """Every rank runs `program`; those named in `extra` run more before it."""
    drawn, ranks = Drawn(), tuple(range(rows * columns))
    for rank in ranks:
        _rank(drawn, rank, rows, columns, [*(extra or {}).get(rank, []), *program], len((extra or {}).get(rank, [])))
    for key, parts in drawn.met.items():
        members = sorted({int(str(drawn.rows[part]["rank"])) for part in parts})
        first, stride = progression(members)
        node = drawn.add(rank=-1, node_type=NodeType.COLLECTIVE, collective=key[0],
                         message_bytes=key[2], group_size=len(members), group_first=first,
                         group_stride=stride)  # fmt: skip
        for part in parts:
            drawn.edge(part, node, Relation.JOINS)
            drawn.edge(node, part + 1, Relation.RELEASES)
    return make_graph(drawn.rows, drawn.edges, ranks=ranks)


def latencies_us(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] as drawn: of equal nodes equal."""
    nodes = graph.nodes
    kind = nodes["node_type"].to_numpy().astype(str)
    return np.select(
        [kind == NodeType.HOST, kind == NodeType.COMPUTE, kind == NodeType.COLLECTIVE],
        [np.full(len(nodes), LAUNCH_US), nodes["flops"].to_numpy(), nodes["message_bytes"].to_numpy()], 0.0,
    )  # fmt: skip


def _rank(drawn: Drawn, rank: int, rows: int, columns: int, items: list[Item], own: int) -> None:
    host: int | None = None
    work: int | None = None
    streams: dict[str, int] = {}
    held: list[int] = []  # exits that the next kernel waits for
    for number, item in enumerate(items):
        launch = drawn.add(rank=rank, node_type=NodeType.HOST, thread=0, segment=Segment.T4, op_name="launch")
        drawn.edge(host, launch, Relation.FOLLOWS)
        host = launch
        if isinstance(item, Work):
            kernel = drawn.add(rank=rank, node_type=NodeType.COMPUTE, device=0, stream=0, op_name="op", flops=item.us)
            drawn.edge(launch, kernel, Relation.LAUNCHES)
            drawn.edge(work, kernel, Relation.FOLLOWS)
            for each in held:
                drawn.edge(each, kernel, Relation.WAITS)
            work, held = kernel, []
            continue
        for key, name in _meetings(item, rank, rows, columns, number - own):
            arrive = _part(drawn, rank, item.group, name, drawn.met[key])
            drawn.edge(launch, arrive, Relation.LAUNCHES)
            drawn.edge(work, arrive, Relation.WAITS)
            drawn.edge(streams.get(name), arrive, Relation.FOLLOWS)
            streams[name] = arrive + 1
            held += [arrive + 1] if item.awaited else []


def _part(drawn: Drawn, rank: int, group: str, name: str, met: list[int]) -> int:
    stream = 1 + ["row", "column", "all", "send", "recv"].index(name)
    part = {"rank": rank, "node_type": NodeType.COMM, "device": 0, "stream": stream, "op_name": name,
            "collective": name}  # fmt: skip
    arrive = drawn.add(**part, segment=Segment.ARRIVE)
    drawn.add(**part, segment=Segment.EXIT)
    met.append(arrive)
    return arrive


def _meetings(item: Meeting, rank: int, rows: int, columns: int, number: int) -> list[tuple[tuple[object, ...], str]]:
    """What the parts of one transfer have in common, and the stream of this rank's part."""
    row, column = divmod(rank, columns)
    if item.group == "ring":
        after = row * columns + (column + 1) % columns
        return [(("message", number, item.us, rank, after), "send"),
                (("message", number, item.us, row * columns + (column - 1) % columns, rank), "recv")]  # fmt: skip
    place = {"row": row, "column": column, "all": 0}[item.group]
    return [((item.group, number, item.us, place), item.group)]
