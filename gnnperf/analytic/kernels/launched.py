"""Elementwise kernels whose shapes were not recorded: bytes from the kernel's name and how it was launched.

    elements = blocks x elements of a block          bytes = elements x tensors x bytes of an item

torch launches one thread for a fixed number of elements (aten/src/ATen/native/cuda: CUDALoops.cuh, Loops.cuh) and one
block for a chunk of a list of tensors (MultiTensorApply.cuh). Names are C++ templates: they hold the number of tensors
or the arguments of the function, and its type. The grid of a concatenation is capped (Shape.cu), so its elements are
those of the kernels that made its parts or that read its result. Its cycles per element are fitted, nothing else
(`lane_cycles`). Gemms need the launches of a layer's other passes (`launched_gemms`). Convolutions
have no such form: time per wave of a kernel's kind misses by a factor of three to four on other projects.
"""

import json
import re
from collections.abc import Mapping
from itertools import islice, takewhile
from math import nan, prod

import numpy as np
import pandas as pd

from gnnperf.analytic.memory_bound.calls import CHUNK_ELEMENTS
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.analytic.memory_bound.streams import CONCATENATION, elementwise_us, stream_us
from gnnperf.graph import combined
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
CAPPED = re.compile(rf"{CONCATENATION}\w*<(?:({_SCALAR}),|.*?OpaqueType<(\d+))")
TRANSFER = re.compile("Mem(?:cpy|set)")
LAUNCH, LANE = ("event_name", "grid", "block"), ("rank", "stream")


def launched_us(nodes: pd.DataFrame, operands: Mapping[int, float], device: DeviceSpec) -> np.ndarray:
    """[n] us of compute nodes in program order by how they were launched; NaN: another kind of kernel, or not recorded.

    `nodes` have LAUNCH and LANE; `operands`: row of a gemm -> elements of its first operand.
    """
    if nodes.empty or not {*LAUNCH, *LANE} <= set(nodes.columns):
        return np.full(len(nodes), np.nan)
    keys = combined([pd.factorize(nodes[name])[0] for name in LAUNCH])
    _, first, code = np.unique(keys, return_index=True, return_inverse=True)
    distinct = [*nodes[[*LAUNCH]].iloc[first].astype(object).itertuples(index=False, name=None)]
    works = np.array([_elements_and_bytes(*launch) for launch in distinct], float)[code]  # [n, 2]
    elements, of_each = works[:, 0], works[:, 1]
    us = stream_us(elements * of_each, device, default_memory_constants())
    capped = np.array([CAPPED.search(str(name)) is not None for name, _, _ in distinct])[code]
    if capped.any():
        elements = _with_concatenated(nodes, np.where(capped, np.nan, elements), operands, capped)
        moved = elements * of_each
        formed = elementwise_us(CONCATENATION, elements, moved, device, default_memory_constants())
        us = np.where(capped, formed, us)
    return us


def _elements_and_bytes(name: object, grid: object, block: object) -> tuple[float, float]:
    """Elements, and bytes read and written for each; NaN: another kind of kernel, or a type of unknown size."""
    if not (isinstance(name, str) and isinstance(grid, str) and isinstance(block, str)):
        return nan, nan
    blocks, threads = float(prod(json.loads(grid))), float(prod(json.loads(block)))
    if capped := CAPPED.search(name):
        return nan, 2.0 * (SCALAR_BYTES[capped[1]] if capped[1] else int(capped[2]))
    functions, functor = FUNCTION.findall(name), FUNCTOR.search(name)
    arguments = functions[-1].split(", ") if functions else []
    item = float(SCALAR_BYTES.get(arguments[-1] if arguments else functor[1] if functor else "", nan))
    if lists := PER_LIST.search(name):
        return blocks * CHUNK_ELEMENTS, int(lists[1]) * item
    operands = len(arguments) or (2 if TWO_OPERANDS.search(name) else 1)
    stated = TENSORS.search(name)
    tensors = int(stated[1]) if stated else operands + 1
    if PER_THREAD.search(name):
        return blocks * threads * THREAD_ELEMENTS, tensors * item
    divided = PER_BLOCK.search(name)
    return blocks * int(divided[1]) * int(divided[2]) if divided else nan, tensors * item


def _with_concatenated(
    nodes: pd.DataFrame, elements: np.ndarray, operands: Mapping[int, float], capped: np.ndarray
) -> np.ndarray:
    """[n] elements with those of concatenations: of their parts, else of what the next kernel of the stream reads."""
    result = elements.copy()
    names, grids = (nodes[name].astype(object).tolist() for name in ("event_name", "grid"))
    lanes: dict[tuple[int, int], list[int]] = {}
    for row, lane in enumerate(zip(*(nodes[name] for name in LANE), strict=True)):
        if not TRANSFER.match(str(names[row])):
            lanes.setdefault(lane, []).append(row)
    for rows in lanes.values():
        for place in reversed(range(len(rows) - 1)):  # the next kernel may be a concatenation itself
            row, after = rows[place], rows[place + 1]
            if not capped[row] or not isinstance(grids[row], str):
                continue
            tensors = [*json.loads(grids[row]), 0, 0][1]
            parts = result[rows[max(place - tensors, 0) : place]]
            if len(parts) == tensors > 0 and (parts == parts[0]).all():
                result[row] = parts.sum()
                continue
            size = operands.get(after, float(result[after]))
            copies = takewhile(lambda each: "copy" in str(names[each]), islice(rows, place + 1, None))
            slices = takewhile(size.__eq__, (result[each] for each in copies))
            result[row] = size * max(len([*slices]), 1)
    return result
