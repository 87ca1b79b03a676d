"""Rules on kernels: misaligned matrix products, chains of elementwise ops, equal calls one after the other.

NVIDIA's guide to matrix products asks for m, n and k in multiples of 16 bytes (8 elements of 16 bits):
https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication
The analytical model has no term for it, so only a recording with aligned products gives the cost.

device   |add|mul|relu|     three times through memory      ->     |add mul relu|
device   |mm|mm|mm|mm|      models or towers in a row       ->     |bmm|            Wang et al. 2021 (HFTA)
"""

import numpy as np
import pandas as pd

from gnnperf.analytic import ITEM_BYTES, Call, product_sizes
from gnnperf.core import InputError, NodeType, OpFamily
from gnnperf.generate import is_list, parse
from gnnperf.whatif.findings.finding import SUSPICIOUS, Basis, Observed, Suspect, Way, scaling
from gnnperf.whatif.fusion import FuseElementwise
from gnnperf.whatif.horizontal import FuseHorizontally

ALIGNED_BYTES = 16
NO_MODEL = "the model prices no alignment: only a recording with aligned products of this dtype gives the gain"


def misaligned_products(step: Observed) -> list[Suspect]:
    """Products on matrix units with a size that is no multiple of 16 bytes."""
    result = _products(step)
    odd = result[result["padding"] > 1.0]
    odd_us = step.latency_us[odd.index.to_numpy()].sum() / step.num_ranks if len(odd) else 0.0
    if not len(odd) or odd_us < SUSPICIOUS * step.step_time_us:
        return []
    sizes = odd["sizes"].value_counts().head(3)
    evidence = (
        f"{len(odd):,} of {len(result):,} products on matrix units have a size that is no multiple of {ALIGNED_BYTES} "
        f"bytes; they take {odd_us:,.0f} us of a rank's step (mean over ranks)",
        "most often " + ", ".join(f"{text} ({count:,})" for text, count in sizes.items()),
    )
    cause = "matrix products have sizes that matrix units are slow on"
    remedy = "pad the sizes (vocabulary, hidden size, batch x length) to the next multiple"
    way, seen = _padded(step, result, odd)
    return [Suspect("misaligned_products", cause, (*evidence, *seen), remedy, way, "" if way else NO_MODEL)]


def _padded(step: Observed, result: pd.DataFrame, odd: pd.DataFrame) -> tuple[tuple[Way, ...], tuple[str, ...]]:
    """Products padded, in the median as fast against the model as the aligned ones of their dtype; () without any.

    One factor for all of a dtype: products that are slow by chance are not counted as slow by their sizes.
    """
    if step.basis is not Basis.MEASURED:
        return (), ()
    over_model = pd.Series(step.latency_us[result.index] / step.predicted_us[result.index], index=result.index)
    aligned = over_model[result["padding"] == 1.0].groupby(result["dtype"]).median().dropna()
    known = odd[odd["dtype"].isin(aligned.index) & over_model[odd.index].notna()]
    if not len(known):
        return (), ()
    own = over_model[known.index].groupby(known["dtype"]).median()
    factor = known["dtype"].map(aligned / own) * known["padding"]
    text = f"{len(known):,} products padded, as fast as aligned ones of this recording"
    seen = (
        f"measured over analytical time, medians: {_listed(own)}; of aligned products {_listed(aligned[own.index])}",
    )
    return (scaling(known.index.to_numpy(), factor.to_numpy(), text),), seen


def _listed(ratio: pd.Series) -> str:
    return ", ".join(f"{dtype} {value:.2f}" for dtype, value in ratio.items())


def _products(step: Observed) -> pd.DataFrame:
    """By node: products whose dtype has matrix units on the device; dtype, sizes as text, FLOPs when padded / FLOPs."""
    nodes = step.graph.nodes
    rates = {} if step.cluster is None else step.cluster.device.flops_per_s
    dtypes = [dtype for dtype in ("float16", "bfloat16") if f"{dtype}_matrix" in rates]
    fits = (step.kind == NodeType.COMPUTE) & (nodes["family"] == OpFamily.GEMM).to_numpy()
    fits &= nodes["dtype"].isin(dtypes).to_numpy() & nodes["input_dims"].notna().to_numpy()
    rows = []
    for node, op, dims, dtype in nodes.loc[fits, ["op_name", "input_dims", "dtype"]].astype(str).itertuples(name=None):
        sizes = _sizes(op, dims)
        if sizes is not None:
            multiple = ALIGNED_BYTES / ITEM_BYTES[dtype]
            padding = float(np.prod([np.ceil(n / multiple) * multiple / n for n in sizes]))
            rows.append((node, dtype, " x ".join(f"{n:g}" for n in sizes), padding))
    return pd.DataFrame(rows, columns=["node", "dtype", "sizes", "padding"]).set_index("node")


def _sizes(op: str, dims: str) -> tuple[float, float, float] | None:
    """m, n, k; None: not given by the shapes."""
    shapes = tuple([] if is_list(argument) else [int(n) for n in argument] for argument in parse(dims))  # type: ignore[arg-type]
    sizes = product_sizes(Call(op.rpartition("::")[2], shapes, 0.0, 0.0))
    return None if sizes is None or min(sizes) <= 0 else (sizes[1], sizes[2], sizes[3])


def unfused_chains(step: Observed) -> list[Suspect]:
    """Elementwise ops in a row, each of which writes what the next one reads."""
    elementwise = (step.kind == NodeType.COMPUTE) & (step.graph.nodes["family"] == OpFamily.ELEMENTWISE).to_numpy()
    time_us = float(step.latency_us[elementwise].sum()) / step.num_ranks
    if time_us < SUSPICIOUS * step.step_time_us:
        return []
    try:
        fused = FuseElementwise()(step.graph)
    except InputError:  # none are in a row
        return []
    evidence = (
        f"{int(elementwise.sum()):,} elementwise ops take {time_us:,.0f} us of a rank's step (mean over ranks); those "
        f"that stand in a row on one shape would become {int(fused.touched.sum()):,}",
    )
    remedy = "torch.compile the part of the model they are in, or use a fused op"
    way = Way((FuseElementwise(),), "{fuse:{}}")
    return [Suspect("unfused_chains", "elementwise ops pass tensors through memory", evidence, remedy, (way,))]


def repeated_models(step: Observed) -> list[Suspect]:
    """Equal calls that are known to be independent; the edit gives the gain of one batched call."""
    try:
        fused = FuseHorizontally()(step.graph)
    except InputError:  # none, or nothing shows it
        return []
    remedy = "stack their inputs and weights and call the op once (torch.func.vmap, torch.bmm, grouped embedding bags)"
    way = Way((FuseHorizontally(),), "{horizontal:{}}")
    cause = "equal calls that do not need each other run one by one"
    return [Suspect("repeated_models", cause, fused.result, remedy, (way,))]
