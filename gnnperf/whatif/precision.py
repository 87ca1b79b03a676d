"""Ops of one dtype compute in another, and messages go compressed.

mixed      linear, conv, attention in the new dtype; parameters, optimizer, messages as they are     (autocast)
all        everything that has the old dtype, messages included                                      (model.to(dtype))
compress   [T1|all_reduce] of 4 n bytes -> 4 n x ratio + extra bytes, or n x bytes of the new dtype
"""

import difflib
from dataclasses import dataclass, field
from math import isnan

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, OpFamily, Phase, require, require_one
from gnnperf.generate import parse
from gnnperf.graph import DTYPE_BYTES, ExecutionGraph
from gnnperf.hardware import ClusterSpec
from gnnperf.whatif.costs import formula_cost
from gnnperf.whatif.edit import ON_DEVICE, Edited, HardwareChange, chosen, is_type, refusal, rewritten, unedited

MATRIX = (OpFamily.GEMM, OpFamily.CONV, OpFamily.ATTENTION)
SCOPES = ("mixed", "all")
FP8, BF16 = "float8", "bfloat16"
FLOATING = tuple(sorted(name for name in DTYPE_BYTES if name.startswith(("float", "bfloat"))))
UNITS_NEEDED = tuple(name for name in FLOATING if name.startswith((FP8, BF16)))  # on GPUs without them: no kernels
UNKNOWN_DTYPE = "kernels and copies of unknown dtype ({:,}, {:.3g} ms): they stay as they are"
CASTS = "what casting from {} to {} and back costs: no cast is added"
BETWEEN = "which ops between matrix products, convolutions and attention follow them into {}: they stay in {}"
OPTIMIZER = "what optimizers do with parameters in {}: copies in full precision are not added"


@dataclass(frozen=True)
class ChangeDtype:
    """Ops of one dtype become ops of another."""

    to: str  # the new dtype (torch's name: bfloat16)
    of: str = field(default="float32", kw_only=True)  # that of the ops that change
    scope: str = field(default="mixed", kw_only=True)  # mixed or all

    def __post_init__(self) -> None:
        for key, value in (("of", self.of), ("to", self.to)):
            require(value in FLOATING, f"{key} of a dtype", value, ", ".join(FLOATING))
        require(self.scope in SCOPES, "scope of a dtype", self.scope, ", ".join(SCOPES))

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        if self.of == self.to:
            return unedited(graph)
        nodes = graph.nodes
        own = chosen(nodes, dtype=self.of)
        if self.scope == "mixed":
            own &= (nodes["family"].isin([str(f) for f in MATRIX]) & (nodes["phase"] != Phase.OPTIMIZER)).to_numpy()
        if not own.any():
            dtypes = sorted({str(dtype) for dtype in nodes["dtype"].dropna()})
            what = "matrix product, convolution or attention" if self.scope == "mixed" else "op"
            remedy = "" if dtypes else "record with record_shapes=True"
            raise refusal(graph, f"no {what} of dtype {self.of!r}", ", ".join(dtypes) or "ops with dtypes", remedy)
        ratio = DTYPE_BYTES[self.to] / DTYPE_BYTES[self.of]
        moved, estimated = self._bytes(nodes, own, ratio)
        other = chosen(nodes, *ON_DEVICE) & (nodes["dtype"].isna() & (nodes["stream"] >= 0)).to_numpy()
        untyped = UNKNOWN_DTYPE.format(int(other.sum()), nodes["latency_us"][other].sum() / 1e3)
        return rewritten(
            graph,
            own,
            (*self._unknown(estimated), *([untyped] if other.any() else [])),
            predicted=own & ~is_type(graph, NodeType.HOST),
            hardware=(HardwareChange(lambda cluster: cluster, check=self._check),) if self.to in UNITS_NEEDED else (),
            dtype=pd.Categorical(np.where(own, self.to, nodes["dtype"].astype(object))),
            bytes=moved,
            message_bytes=nodes["message_bytes"].where(~own, nodes["message_bytes"] * ratio),
        )

    def _check(self, cluster: ClusterSpec) -> None:
        """Refuse a GPU without matrix units for the dtype: it has no kernels for it."""
        device, needed = cluster.device, BF16 if self.to == BF16 else FP8
        if (device.kind == "gpu" or needed == FP8) and f"{needed}_matrix" not in device.flops_per_s:
            units = ", ".join(key.removesuffix("_matrix") for key in device.flops_per_s if key.endswith("_matrix"))
            raise InputError(f"{device.name} has no units for {self.to}", where="to of a dtype",
                             allowed=f"on this device: {units or 'no dtype with matrix units'}, float32",
                             remedy="predict for another GPU (hardware=h100_sxm)")  # fmt: skip

    def _bytes(self, nodes: pd.DataFrame, own: np.ndarray, ratio: float) -> tuple[np.ndarray, list[str]]:
        """[num_nodes] bytes, and the ops without a formula: all their bytes are assumed to change."""
        moved, estimated = nodes["bytes"].to_numpy(copy=True), set()
        table = nodes.loc[own & ~np.isnan(moved), ["op_name", "input_dims", "num_siblings"]]
        for (name, dims), rows in table.groupby(["op_name", "input_dims"], observed=True, dropna=False):
            arguments = parse(dims) if isinstance(dims, str) else ()
            before, after = (formula_cost(str(name), arguments, dtype).bytes for dtype in (self.of, self.to))
            at, share = rows.index.to_numpy(), rows["num_siblings"].to_numpy()
            if isnan(before) or isnan(after):
                estimated.add(str(name))
                moved[at] *= ratio
            else:
                moved[at] = after / share + ratio * (moved[at] - before / share)
        return moved, sorted(estimated)

    def _unknown(self, estimated: list[str]) -> tuple[str, ...]:
        sentences = [BETWEEN.format(self.to, self.of), CASTS.format(self.of, self.to)]
        if self.scope == "all":
            sentences = [OPTIMIZER.format(self.to)]
        if estimated:
            sentences.append(f"which inputs of {', '.join(estimated)} are {self.of}: all are assumed to be")
        return tuple(sentences)


WORK = "what compressing and decompressing cost: no op is added"
SUM = "whether compressed values can be added up on their way (sparse ones are gathered: another collective)"
UNSIZED = "how many bytes messages have ({:,} of them): they stay as they are"
SMALL = "how messages of another or unknown dtype are sent ({:,} of them): they stay as they are"


@dataclass(frozen=True)
class CompressMessages:
    """Messages of one kind of collective are sent compressed."""

    kind: str = "all_reduce"  # all_reduce, all_to_all, ...
    # compressed / uncompressed bytes (values of 4 bytes as 2: 0.5; one value in a hundred: 0.01); None: `to` is given
    ratio: float | None = None
    to: str | None = None  # dtype that the values are sent in (float16); None: `ratio` is given
    extra_bytes: float = 0.0  # scales, positions, headers that come with each message
    phase: str | None = None  # forward, backward, optimizer; None any

    def __post_init__(self) -> None:
        require_one("a compression", ratio=self.ratio, to=self.to)
        require(self.ratio is None or 0 < self.ratio <= 1, "ratio of a compression", self.ratio, "above 0, at most 1")
        require(self.to is None or self.to in FLOATING, "to of a compression", self.to, ", ".join(FLOATING))
        require(self.extra_bytes >= 0, "extra_bytes of a compression", self.extra_bytes, "0 or more")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        nodes, named = graph.nodes, self._named(graph)
        dtype = nodes["dtype"].astype(object)
        if self.to is None:
            ratio = np.full(graph.num_nodes, self.ratio)
        else:
            ratio = DTYPE_BYTES[self.to] / dtype.map({name: DTYPE_BYTES[name] for name in FLOATING}).to_numpy(float)
        size = nodes["message_bytes"].to_numpy()
        smaller = named & (size > 0) & (ratio < 1.0)
        if not smaller.any():
            raise refusal(graph, f"no {self.kind} message that {self.to or self.ratio} makes smaller",
                          "messages of known size and larger values")  # fmt: skip
        counts = ((UNSIZED, named & np.isnan(size)), (SMALL, named & (size > 0) & ~(ratio < 1.0)))
        sums = (SUM,) if self.kind in ("all_reduce", "reduce_scatter", "reduce") else ()
        return rewritten(
            graph,
            smaller,
            (WORK, *sums, *(sentence.format(int(which.sum())) for sentence, which in counts if which.any())),
            predicted=smaller,
            message_bytes=np.where(smaller, size * ratio + self.extra_bytes, size),
            dtype=nodes["dtype"] if self.to is None else pd.Categorical(np.where(smaller, self.to, dtype)),
        )

    def _named(self, graph: ExecutionGraph) -> np.ndarray:
        """[num_nodes] bool: transfers and parts of this kind."""
        nodes, on_wire = graph.nodes, (NodeType.COLLECTIVE, NodeType.COMM)
        named = chosen(nodes, *on_wire, collective=self.kind, phase=self.phase)
        if not named.any():
            kinds = sorted({str(kind) for kind in nodes["collective"][chosen(nodes, *on_wire)].dropna()})
            near = difflib.get_close_matches(self.kind, kinds, n=1, cutoff=0.4)
            what = f"no {self.kind!r}" + (f" in {self.phase}" if self.phase else "")
            raise refusal(graph, what, ", ".join(kinds) or "a run with collectives",
                          f"did you mean {near[0]!r}?" if near else "")  # fmt: skip
        return named
