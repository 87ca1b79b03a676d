"""Classes and families of measured nodes, from what a trace shows after the run: kernel names and launches, too.

They group measurements of one run or move them to other runs. The network gets none of this: its features hold what is
known before the run.
"""

import re
from functools import lru_cache

import numpy as np
import pandas as pd

from gnnperf.core import OpFamily, schema
from gnnperf.graph.tables import content_keys

_KIND = ("node_type", "segment")
_SIZES = ("input_dims", "dtype", "message_bytes", "group_size", "grid", "block", "registers", "shared_bytes")
CLASS_LEVELS: tuple[tuple[str, ...], ...] = (  # finest class first: columns of nodes, and those of `_named`
    (*_KIND, "op_name", "event_name", *_SIZES, "phase", "stream", "ordinal"),
    (*_KIND, "op_name", "event_name", *_SIZES),
    (*_KIND, "op_name", "event_name", "input_dims"),
    (*_KIND, "op_name", "event_name"),
    (*_KIND, "event_name"),
    (*_KIND, "kernel_words"),
    (*_KIND, "measured_family"),
    _KIND,
)


def measurement_classes(nodes: pd.DataFrame, finest: int = 0) -> np.ndarray:
    """[num_levels, num_nodes] int64 class of each node per level of CLASS_LEVELS from `finest` on, finest first.

    Nodes of one class are repetitions of one piece of work: their latencies are samples of one quantity. Equal content
    gives equal numbers in every run.
    """
    named = _named(nodes)
    return np.stack([content_keys(named, columns) for columns in CLASS_LEVELS[finest:]])


def _named(nodes: pd.DataFrame) -> pd.DataFrame:
    """The nodes with what their kernels' names tell: `kernel_words` (empty on the host) and `measured_family`."""
    names = nodes["event_name"].cat.categories
    words = np.array([*(" ".join(kernel_tokens(function_of(name))) for name in names), None], dtype=object)
    spread = words[np.where(nodes["stream"] >= 0, schema.codes_of(nodes["event_name"]), -1)]
    return nodes.assign(kernel_words=pd.Categorical(spread), measured_family=pd.Categorical(measured_families(nodes)))


# What a kernel does by its name, in the order in which the words are looked for. Libraries name their kernels after
# the operation: cuBLAS and CUTLASS (gemm), cuDNN (implicit_gemm of a convolution), fbgemm, FlashAttention, apex.
_FAMILY_WORDS: tuple[tuple[OpFamily, str], ...] = (
    (OpFamily.COLLECTIVE, r"nccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|deep_ep"),
    (OpFamily.ATTENTION, r"flash|fmha|attention|attn|mha_"),
    (OpFamily.CONV, r"conv|winograd|fprop|dgrad|wgrad|im2col|col2im|nchwtonhwc|nhwctonchw"),
    (OpFamily.EMBEDDING, r"embedding|tbe_|embed"),
    (OpFamily.OPTIMIZER, r"adam|adagrad|sgd_|lamb|multi_tensor|optimizer"),
    (OpFamily.NORM, r"layer_?norm|batch_?norm|group_?norm|rms_?norm|bn_|welford|norm_"),
    (OpFamily.SOFTMAX, r"softmax"),
    (OpFamily.LOSS, r"nll_loss|cross_?entropy|mse_loss"),
    (OpFamily.GEMM, r"gemm|cublas|cutlass|gemv|nvjet|cijk_|matmul|wmma|s\d+cudnn"),
    (OpFamily.POOLING, r"pool|upsample"),
    (OpFamily.RANDOM, r"philox|distribution|dropout|random|curand"),
    (
        OpFamily.INDEXING,
        r"index|gather|scatter|permute|sort|radix|scan|cumsum|bucketize|unique|topk|select|bounds_check",
    ),
    (OpFamily.COPY, r"copy|catarray|memcpy|transpose|cast|quantiz|to_float"),
    (OpFamily.REDUCTION, r"reduce|triton_(?:red|per)_|sum|argm"),
    (OpFamily.ELEMENTWISE, r"elementwise|triton_poi_|fill|pointwise|activation|functor"),
)
_BRACKETS = re.compile(r"<[^<>]*>|\([^()]*\)")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+(?:x\d+)+")


def kernel_tokens(name: str) -> tuple[str, ...]:
    """The words of a kernel's name in lower case: ampere_sgemm_128x64_tn -> ampere, sgemm, 128x64, tn.

    Sizes of tiles are kept, other numbers are not: they count variants.
    """
    return tuple(word.lower() for word in _WORD.findall(name))


def function_of(name: str) -> str:
    """A kernel's name without template arguments and parameters."""
    before = ""
    while name != before:  # innermost brackets first
        before, name = name, _BRACKETS.sub("", name)
    return name


@lru_cache(maxsize=1 << 14)
def kernel_family(name: str) -> OpFamily:
    """The family that a kernel's name shows: that of the function, else of its template arguments; else UNKNOWN."""
    for text in (function_of(name).lower(), name.lower()):
        for family, words in _FAMILY_WORDS:
            if re.search(words, text):
                return family
    return OpFamily.UNKNOWN


def measured_families(nodes: pd.DataFrame) -> np.ndarray:
    """[num_nodes] str objects: the family of each node's op; if unknown, the one that its kernel's name shows."""
    family = nodes["family"].astype(object).to_numpy(copy=True)
    unknown = np.flatnonzero((nodes["family"] == OpFamily.UNKNOWN).to_numpy() & (nodes["stream"] >= 0).to_numpy())
    names = nodes["event_name"].astype(object).to_numpy()[unknown]
    family[unknown] = [str(kernel_family(name)) if isinstance(name, str) else str(OpFamily.UNKNOWN) for name in names]
    return family
