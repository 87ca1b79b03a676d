"""Classes and families of measured nodes, from what a trace shows after the run: kernel names and launches, too.

They group measurements of one run or move them to other runs. The network gets none of this: its features hold what is
known before the run.
"""

import re
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.core import OpFamily, schema
from gnnperf.graph.tables import content_keys

_KIND = ("node_type", "segment")
# Finest class first: columns of nodes, and those of `_named`. The few steps of a recording leave too few nodes in finer
# ones (sizes and launch, too): on two public runs the strict replay then errs by 0.7 instead of 0.4 %.
CLASS_LEVELS: tuple[tuple[str, ...], ...] = (
    (*_KIND, "op_name", "event_name", "input_dims"),
    (*_KIND, "op_name", "event_name"),
    (*_KIND, "event_name"),
    (*_KIND, "kernel_words"),
    (*_KIND, "measured_family"),
    _KIND,
)


def measurement_classes(nodes: pd.DataFrame) -> np.ndarray:
    """[num_levels, num_nodes] int64 class of each node per level of CLASS_LEVELS, finest first.

    Nodes of one class are repetitions of one piece of work: their latencies are samples of one quantity. Equal content
    gives equal numbers in every run.
    """
    named = _named(nodes)
    return np.stack([content_keys(named, columns) for columns in CLASS_LEVELS])


def _named(nodes: pd.DataFrame) -> pd.DataFrame:
    """The nodes with what their kernels' names tell: `kernel_words` (empty on the host) and `measured_family`."""
    names = schema.categories_of(nodes["event_name"])
    number, words = pd.factorize(np.array([" ".join(kernel_tokens(function_of(n))) for n in names], dtype=object))
    code = np.where(nodes["stream"] >= 0, schema.codes_of(nodes["event_name"]), -1)
    spread = schema.categorical(np.append(number, -1)[code], words.tolist())
    return nodes.assign(kernel_words=spread, measured_family=measured_families(nodes))


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


def measured_families(nodes: pd.DataFrame) -> "pd.Categorical[Any]":
    """[num_nodes] the family of each node's op; if unknown, the one that its kernel's name shows."""
    texts = list(dict.fromkeys([*schema.categories_of(nodes["family"]), *map(str, OpFamily)]))  # codes stay
    unknown = np.flatnonzero((nodes["family"] == OpFamily.UNKNOWN).to_numpy() & (nodes["stream"] >= 0).to_numpy())
    names, of_event = schema.categories_of(nodes["event_name"]), schema.codes_of(nodes["event_name"])[unknown]
    shown = np.full(len(names) + 1, texts.index(OpFamily.UNKNOWN), dtype=np.int16)  # the last one: no name
    for code in np.unique(of_event[of_event >= 0]).tolist():
        shown[code] = texts.index(kernel_family(names[code]))
    codes = schema.codes_of(nodes["family"]).astype(np.int16)
    codes[unknown] = shown[of_event]
    return schema.categorical(codes, texts)
