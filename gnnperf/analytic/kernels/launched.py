"""Elementwise kernels whose shapes were not recorded: bytes from the kernel's name and how it was launched.

    elements = blocks x elements of a block          bytes = elements x tensors x bytes of an item

torch launches one thread for a fixed number of elements (aten/src/ATen/native/cuda: CUDALoops.cuh, Loops.cuh) and one
block for a chunk of a list of tensors (MultiTensorApply.cuh). Names are C++ templates: they hold the number of tensors
or the arguments of the function, and its type. Nothing is fitted. Gemms need the launches of a layer's other passes
(`launched_gemms`). Convolutions have no such form: time per wave of a kernel's kind misses by a factor of three to
four on other projects.
"""

from __future__ import annotations

import json
import re
from functools import cache
from math import prod

import numpy as np
import pandas as pd

from gnnperf.analytic.memory_bound.calls import CHUNK_ELEMENTS
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.analytic.memory_bound.streams import stream_us
from gnnperf.hardware import DeviceSpec

THREAD_ELEMENTS = 4  # of vectorized and unrolled kernels: thread_work_size
# Kernels that divide threads, whose template states threads of a block and elements of each, or that divide lists.
PER_THREAD = re.compile(r"(?:vectorized|unrolled)_elementwise_kernel<")
PER_BLOCK = re.compile(r"\belementwise_kernel<(\d+), (\d+)")
PER_LIST = re.compile(r"multi_tensor_apply_kernel<.*?TensorList\w*Metadata<(?:[\w:]+, )?(\d+)")
TENSORS = re.compile(r"Array<char\*, (\d+)")
SCALAR_BYTES = {"float": 4, "c10::Half": 2, "c10::BFloat16": 2, "double": 8, "long": 8, "int": 4, "short": 2, "bool": 1,
                "unsigned char": 1}  # fmt: skip
_SCALAR = "|".join(SCALAR_BYTES)
FUNCTION = re.compile(rf"lambda\(((?:{_SCALAR})(?:, (?:{_SCALAR}))*)\)")  # arguments of the function of one element
FUNCTOR = re.compile(rf"Functor\w*<({_SCALAR})")
TWO_OPERANDS = re.compile("[Aa]dd|Mul|Div|Binary")  # of functors: others take one


@cache
def launched_bytes(name: str) -> tuple[float, float] | None:
    """Bytes of one block and of one thread that a name states, read and written; one of them is 0.

    None: another kind of kernel, or a type without a known size.
    """
    functions, functor = FUNCTION.findall(name), FUNCTOR.search(name)
    arguments = functions[-1].split(", ") if functions else []
    scalar = arguments[-1] if arguments else functor[1] if functor else ""
    item = float(SCALAR_BYTES.get(scalar, np.nan))
    if np.isnan(item):
        return None
    if lists := PER_LIST.search(name):
        return CHUNK_ELEMENTS * int(lists[1]) * item, 0.0
    operands = len(arguments) or (2 if TWO_OPERANDS.search(name) else 1)
    stated = TENSORS.search(name)
    tensors = int(stated[1]) if stated else operands + 1
    if PER_THREAD.search(name):
        return 0.0, THREAD_ELEMENTS * tensors * item
    block = PER_BLOCK.search(name)
    return (int(block[1]) * int(block[2]) * tensors * item, 0.0) if block else None


def launched_us(nodes: pd.DataFrame, device: DeviceSpec) -> np.ndarray:
    """[n] us of compute nodes by `event_name`, `grid` and `block`; NaN: another kind of kernel, or not recorded."""
    names = ["event_name", "grid", "block"]
    if not set(names) <= set(nodes.columns):
        return np.full(len(nodes), np.nan)
    code, distinct = pd.factorize(pd.MultiIndex.from_frame(nodes[names].astype(object)))
    moved = np.array([_moved_bytes(*launch) for launch in distinct], float)  # [launches]
    return stream_us(moved, device, default_memory_constants())[code] if len(code) else np.empty(0)


def _moved_bytes(name: object, grid: object, block: object) -> float:
    stated = launched_bytes(name) if isinstance(name, str) else None
    if stated is None or not isinstance(grid, str) or not isinstance(block, str):
        return np.nan
    blocks, threads = float(prod(json.loads(grid))), float(prod(json.loads(block)))
    return blocks * (stated[0] + threads * stated[1])
