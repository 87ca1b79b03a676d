"""Operator lists of sitar-lab/NeuSight (MIT): what torch.fx saw of a model, node by node, with shapes and no times.

A list holds a transformer's layer once (named as layer 0) between what comes before and what comes after, or every
layer. A result of shape (1,) is a number or a tuple of Python, not a tensor of the device.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from gnnperf.core import InputError, untrusted

COLUMNS = ("Name", "OpName", "FwOps", "BwOps", "Prev", "InputShapes", "OutputShape")
Shape = tuple[int, ...]
NUMBER: Shape = (1,)
NO_SOURCES = "set()"
SUM, ASIDE = "ALLREDUCE", "ASYNC"


@dataclass(frozen=True)
class ListedOp:
    """One node of a list."""

    name: str  # torch.fx's: the function with a number (matmul_1), or a module's path (transformer_h_0_ln_1)
    kind: str  # NeuSight's word: Linear, BMM, VECadd (two tensors), VECaddu (a tensor and a number), dropout, misc, ...
    sources: frozenset[str]  # names of the nodes whose results it takes, in no order
    inputs: tuple[Shape, ...]  # shapes of its arguments; NUMBER: not a tensor
    output: Shape  # shape of its result
    forward_sum: int = 0  # elements of a sum over all ranks in the forward pass; 0 none
    backward_sum: int = 0  # the same in the backward pass
    aside: bool = False  # the sums do not hold up what follows
    table_rows: int = 0  # of an embedding's table, which only lists of training tell; 0 unknown

    @property
    def function(self) -> str:
        """The name without its number: "matmul" for "matmul_1"; a module's path stays as it is."""
        head, _, tail = self.name.rpartition("_")
        return head if head and tail.isdigit() else self.name

    @property
    def tensors(self) -> tuple[Shape, ...]:
        """Shapes of the arguments that are tensors."""
        return tuple(shape for shape in self.inputs if shape != NUMBER)


def read_operator_list(path: Path) -> tuple[ListedOp, ...]:
    """The nodes of a list, in the order of the forward pass."""
    with untrusted.reading(path):
        result = pd.read_csv(path, dtype=str, keep_default_na=False)
    missing = [name for name in COLUMNS if name not in result.columns]
    if missing:
        raise InputError(f"no column {', '.join(missing)}", where=str(path), allowed=", ".join(COLUMNS))
    records = result[list(COLUMNS)].itertuples(index=False, name=None)
    with untrusted.reading(path):
        ops = tuple(_op(dict(zip(COLUMNS, row, strict=True)), f"{path}, line {i + 2}") for i, row in enumerate(records))
    names = [op.name for op in ops]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InputError(f"several nodes named {', '.join(twice)}", where=str(path), allowed="one node per name")
    return ops


def _op(row: dict[str, str], where: str) -> ListedOp:
    sources = frozenset() if row["Prev"] == NO_SOURCES else frozenset(map(str, _literal(row["Prev"], where)))
    output = _literal(row["OutputShape"], where)
    calls = _literal(row["BwOps"], where)
    (forward, _), (backward, aside) = _sum(_literal(row["FwOps"], where)), _sum(calls)
    rows = int(calls[0][1][0][0]) if row["OpName"] == "EMBEDDING" and calls else 0  # type: ignore[index]
    return ListedOp(
        row["Name"], row["OpName"], sources, tuple(_shape(s, where) for s in _literal(row["InputShapes"], where)),
        _shape(output, where) if output else NUMBER, forward, backward, aside, rows,
    )  # fmt: skip


def _sum(calls: object) -> tuple[int, bool]:
    """Elements of the sum over ranks that a node stands for, and whether it goes on next to other work."""
    for name, arguments in calls if isinstance(calls, list) else ():
        if str(name).startswith(SUM):
            return int(arguments[0]), str(name).endswith(ASIDE)
    return 0, False


def _literal(text: str, where: str) -> list | tuple | set:  # type: ignore[type-arg]
    try:
        result = ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise InputError(f"cell {text[:60]!r}", where=where, allowed="a list or tuple as Python writes it") from error
    if not isinstance(result, list | tuple | set):
        raise InputError(f"cell {text[:60]!r}", where=where, allowed="a list or tuple as Python writes it")
    return result


def _shape(result: object, where: str) -> Shape:
    if not isinstance(result, list | tuple) or not all(isinstance(n, int) and n >= 0 for n in result):
        raise InputError(f"shape {result!r}", where=where, allowed="a tuple of whole numbers from 0 up")
    return tuple(result)
