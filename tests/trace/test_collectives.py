"""Collectives: metadata, shapes, or a kernel's name only."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gnnperf.trace.collectives import dtype_name, elements, kind_of_host_name, kind_of_kernel_name, kind_of_word
from tests.trace import kineto_files as files


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("allreduce", "all_reduce"), ("_allgather_base", "all_gather"), ("all_to_allv", "all_to_all"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"), ("broadcastOop", "broadcast"), ("send", "send"),
        ("wait", None), ("init", None), ("coalesced", None),
    ],
)  # fmt: skip
def test_every_spelling_is_one_kind(word: str, kind: str | None) -> None:
    assert kind_of_word(word) == kind


def test_names_of_ranges_ops_and_kernels() -> None:
    for name, kind in (
        ("nccl:_all_gather_base", "all_gather"), ("gloo:all_reduce", "all_reduce"), ("nccl:recv 1->0", "recv"),
        ("c10d::alltoall_base_", "all_to_all"), ("## alltoall_fwd_single ##", None),
    ):  # fmt: skip
        assert kind_of_host_name(name) == kind, name
    for name, kind in (
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce"),
        ("ncclDevKernel_SendRecv(ncclDevComm*)", "all_to_all"), ("ncclDevKernel_Generic(x)", "unknown"),
        ("ncclKernel_ReduceScatter_RING_LL", "reduce_scatter"), ("void at::native::reduce_kernel<512>", None),
    ):  # fmt: skip
        assert kind_of_kernel_name(name) == kind, name
    assert [dtype_name(name) for name in ("c10::BFloat16", "BFloat16", "")] == ["bfloat16", "bfloat16", None]


def test_elements_of_shapes_and_lists_of_shapes() -> None:
    assert [elements(shape) for shape in ([2, 3], [[2, 3], [4]], [])] == [6, 10, None]


def _call(op: str, range_name: str, op_args: dict[str, Any], range_args: dict[str, Any],
          stated: dict[str, Any], kernel: dict[str, Any]) -> list[dict[str, Any]]:  # fmt: skip
    """One call of a collective, and the bare second event after it."""
    return [
        files.host(op, 10, 40, **{"External id": 11, **op_args}),
        files.host("record_param_comms", 15, 25, **{"External id": 12, **stated}),
        files.host(range_name, 17, 20, "user_annotation", **{"External id": 13, **range_args}),
        files.call("cudaLaunchKernelExC", 20, 5, 901),
        files.host("record_param_comms", 45, 2, **{"External id": 14}),
        files.device("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 60, 30, 901, **kernel),
    ]


def test_shapes_on_the_host_reach_the_kernel_but_not_the_bare_second_event(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[64], [32], [], [], [], []], "Input type": ["float", "float", "", "", "", "Scalar"]}
    ranged = {"Input Dims": [[32]], "Input type": ["float"]}
    events = files.events_of(tmp_path, _call("c10d::alltoall_base_", "nccl:all_to_all", shapes, ranged, {}, {}))
    given = events[events["collective"].notna()]
    assert given["name"].tolist()[:3] == ["c10d::alltoall_base_", "record_param_comms", "nccl:all_to_all"]
    assert len(given) == 4 and given["kind"].tolist()[3] == "kernel"
    assert set(given["collective"]) == {"all_to_all"}  # the host knows better than the kernel's name
    assert set(given["in_elements"]) == {32.0} and set(given["out_elements"]) == {64.0}
    assert set(given["comm_dtype"]) == {"float32"}
    assert (given["group_size"] == -1).all() and given["group"].isna().all()


def test_metadata_names_group_size_and_dtype(tmp_path: Path) -> None:
    stated = {"Collective name": "allreduce", "In msg nelems": 6144, "Out msg nelems": 6144, "Group size": 2,
              "dtype": "Float", "Process Group Name": "13", "Process Group Ranks": "[0, 1]"}  # fmt: skip
    events = files.events_of(tmp_path, _call("c10d::allreduce_", "nccl:all_reduce", {}, {}, stated, stated))
    given = events[events["collective"].notna()]
    assert len(given) == 4
    assert set(given["group"]) == {"[0,1]"} and set(given["group_size"]) == {2}
    assert set(given["in_elements"]) == set(given["out_elements"]) == {6144.0}


def test_a_wait_is_no_collective(tmp_path: Path) -> None:
    wait = files.host("record_param_comms", 5, 3, **{"Collective name": "wait", "Group size": 1, "In msg nelems": 0})
    events = files.events_of(tmp_path, [*files.step_events(), wait])
    assert events["collective"].isna().all()


def test_a_groups_ranks_come_from_its_name_or_its_stride(tmp_path: Path) -> None:
    named = {"Collective name": "allgather", "In msg nelems": 10, "Group size": 2, "Process Group Name": "3",
             "Process Group Ranks": "[0, ..., 7]"}  # fmt: skip
    strided = {"Collective name": "allgather", "In msg nelems": 10, "Group size": 3, "Global rank start": 1,
               "Global rank stride": 2}  # fmt: skip
    events = files.events_of(
        tmp_path,
        [files.device("a", 1, 1, 1, **named), files.device("b", 5, 1, 2, **strided)],
        pg_config=[{"pg_name": "3", "ranks": [4, 6]}],
    )
    assert events["group"].tolist() == ["[4,6]", "[1,3,5]"]
    assert events["out_elements"].tolist() == [20.0, 30.0]


def test_a_kernel_isolated_has_a_kind_and_unknown_size(tmp_path: Path) -> None:
    kernels = [files.device("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", 1, 1, 1), files.device("gemm", 5, 1, 2)]
    events = files.events_of(tmp_path, kernels)
    assert events["collective"].tolist()[0] == "all_to_all" and pd.isna(events["collective"].tolist()[1])
    assert np.isnan(events["in_elements"]).all()


def test_gloo_ranges_are_collectives(tmp_path: Path) -> None:
    ranged = files.host("gloo:all_reduce", 5, 9, "user_annotation", thread=3,
                        **{"Input Dims": [[100], [20]], "Input type": ["float", "float"]})  # fmt: skip
    events = files.events_of(tmp_path, [*files.step_events(), ranged])
    row = events[events["collective"].notna()].iloc[0]
    assert (row["collective"], row["in_elements"], row["out_elements"]) == ("all_reduce", 120.0, 120.0)
