"""Embedding tables with more or fewer rows: the same look-ups in larger or smaller tables.

before   embedding_bag [100000,32], [4096]    dense gradient [100000,32]    fused update [100000,32]
after    embedding_bag [400000,32], [4096]    dense gradient [400000,32]    fused update [400000,32]

Look-ups stay; work on every row (a dense gradient and its update) grows.
"""

from dataclasses import dataclass, replace

from gnnperf.core import NodeType, OpFamily, require
from gnnperf.generate import Argument, Shape, each, parse, tensors
from gnnperf.graph import DTYPE_BYTES, ExecutionGraph, TableCounts
from gnnperf.whatif.batch_shapes import WHOLE, all_shapes, op_of, whole
from gnnperf.whatif.costs import DENSE_GRADIENTS, Cost, DistinctCall, added_rows, change_calls, with_shapes
from gnnperf.whatif.edit import Edited, is_type, refusal, rewritten

LOOKUPS = ("embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
COUNTED = "how often a row is looked up again in a table of another size: as was counted"
UNCOUNTED = "how often a row is looked up again in a table of another size, and what a cache holds of it"
MESSAGES = "whether gradients of whole tables are sent: messages stay"
RESULT = "tables {} become {}; {:.4g} MB of float32 become {:.4g} MB"


def tables(graph: ExecutionGraph, rows: int | None) -> frozenset[Shape]:
    """Shapes [rows, columns] of the tables that are looked up; `rows`: only of so many rows.

    Raises InputError: there is none.
    """
    nodes = graph.nodes
    of_tables = (nodes["family"] == OpFamily.EMBEDDING) & nodes["input_dims"].notna()
    calls = nodes.loc[of_tables, ["op_name", "input_dims"]].astype(str).drop_duplicates()
    looked_up = [tensors(parse(dims)[0]) for name, dims in calls.itertuples(index=False) if op_of(name) in LOOKUPS]
    result = {shapes[0] for shapes in looked_up if shapes}
    fitting = frozenset(shape for shape in result if len(shape) == 2 and rows in (None, shape[0]))
    if not fitting:
        known = ", ".join(sorted(str(shape[0]) for shape in result))
        raise refusal(graph, "no embedding table" + (f" of {rows} rows" if rows else ""),
                      known or "a program that looks up rows of tables, with shapes of inputs")  # fmt: skip
    return fitting


@dataclass(frozen=True)
class ResizeTables:
    """Embedding tables have more or fewer rows."""

    factor: float  # new rows / old rows, of what each rank holds of a table
    of: int | None = None  # only tables of which a rank holds so many rows; None all

    def __post_init__(self) -> None:
        require(self.factor > 0, "factor of tables", self.factor, "above 0")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        where = "factor of tables"
        sizes: dict[Shape, Shape] = {
            shape: (whole(shape[0], self.factor, "number of rows", where), shape[1]) for shape in tables(graph, self.of)
        }
        changed = change_calls(graph.nodes, lambda call: _resized(call, sizes))
        counted = tuple(self._counted(one, sizes) for one in graph.tables)
        return rewritten(
            replace(graph, nodes=changed.nodes, tables=counted),
            changed.touched,
            (COUNTED if graph.tables else UNCOUNTED, MESSAGES),
            predicted=changed.touched & ~is_type(graph, NodeType.HOST),
            result=(_result(sizes),),
        )

    def _counted(self, counts: TableCounts, sizes: dict[Shape, Shape]) -> TableCounts:
        """Counts of a whole table, of which ranks may hold rows or columns."""
        holds = any(counts.rows % shape[0] == 0 and counts.dim % shape[1] == 0 for shape in sizes)
        return replace(counts, rows=round(counts.rows * self.factor)) if holds else counts


def _resized(call: DistinctCall, sizes: dict[Shape, Shape]) -> tuple[tuple[Argument, ...], Cost] | None:
    """New shapes and cost of a call on a table; None: another one."""
    if op_of(call.name) in DENSE_GRADIENTS:
        return _dense_gradient(call, sizes)
    new = tuple(each(argument, lambda shape: sizes.get(shape, shape)) for argument in call.arguments)
    if new == call.arguments:
        return None
    if call.is_sparse_update:
        return new, call.recorded
    return new, with_shapes(call.name, call.arguments, new, call.recorded, call.dtype, 1.0, call.num_siblings)


def _dense_gradient(call: DistinctCall, sizes: dict[Shape, Shape]) -> tuple[tuple[Argument, ...], Cost] | None:
    """Of the table with so many columns and bytes: all of it is zeroed."""
    columns = next((shape[-1] for shape in all_shapes(call.arguments)), 0)
    item = DTYPE_BYTES.get(call.dtype or "float32", 4)
    zeroed = call.recorded.bytes * call.num_siblings - added_rows(call.arguments, call.dtype)
    for old, new in sizes.items():
        if old[1] == columns and abs(zeroed / (old[0] * old[1] * item) - 1.0) < WHOLE:
            moved = call.recorded.bytes + (new[0] - old[0]) * columns * item / call.num_siblings
            return call.arguments, Cost(call.recorded.flops, moved)
    return None


def _result(sizes: dict[Shape, Shape]) -> str:
    old, new = (", ".join(str(list(shape)) for shape in shapes) for shapes in (sizes, sizes.values()))
    held = [sum(rows * columns * 4.0 / 1e6 for rows, columns in shapes) for shapes in (sizes, sizes.values())]
    return RESULT.format(old, new, *held)
