"""Collectives: metadata, shapes, or a kernel's name only. Channels of sends and receives: ops, metadata, ranges."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gnnperf.trace.collectives import dtype_name, elements, kind_of_host_name, kind_of_kernel_name, kind_of_word
from gnnperf.trace.groups import channel, is_channel, name_groups, peer_of_inputs, peer_of_name
from gnnperf.trace.table import TraceTable
from tests.trace import kineto_files as files
from tests.traces import Event, annotation, mark, op, trace


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


def test_a_channel_names_global_ranks_of_sender_and_receiver() -> None:
    assert channel("send", 2, 1, (2, 5)) == "[2>5]"
    assert channel("recv", 2, 1, (2, 5)) == "[5>2]"
    assert channel("recv", 2, 1, (2, 5), tag=7) == "[5>2]#7"
    assert channel("send", 2, 2, (2, 5)) is None  # the group has two ranks
    assert channel("send", 3, 1, (2, 5)) is None  # and 3 is none of them
    assert is_channel("[5>2]#7")
    assert not is_channel("[2,5]")
    assert not is_channel(None)


def test_peers_of_names_and_inputs() -> None:
    assert [peer_of_name(name) for name in ("nccl:send 0->3", "nccl:recv 0<-3", "gloo:send")] == [3, 3, None]
    for name, values, expected in (
        ("send", ["", "", "3", "0"], (3, 0)), ("recv_", ["", "", "3", "9"], (3, 9)),
        ("recv_any_source_", ["", "", "0"], None), ("allreduce_", ["", "", "3", "0"], None), ("send", None, None),
        ("send", ["", "", "", ""], None),
    ):  # fmt: skip
        assert peer_of_inputs(f"c10d::{name}", values) == expected, (name, values)


SEND = {"Input Dims": [[[8, 4]], [], [], []], "Concrete Inputs": ["", "", "1", "0"],
        "Input type": ["TensorList", "", "Scalar", "Scalar"]}  # fmt: skip


@pytest.mark.parametrize(
    ("rank", "world_size", "info", "expected"),
    [
        (0, 2, {"backend": "gloo"}, "[0>1]"),
        (3, 4, {"backend": "gloo", "pg_config": [{"pg_name": "0", "ranks": [3, 2, 1, 0]}]}, "[3>2]"),
        # of two groups, the call does not say which
        (0, 4, {"pg_config": [{"pg_name": "0", "ranks": [0, 1, 2, 3]}, {"pg_name": "1", "ranks": [0, 2]}]}, None),
    ],
)
def test_a_gloo_send_goes_to_a_rank_of_the_only_group(
    tmp_path: Path, rank: int, world_size: int, info: dict[str, Any], expected: str | None
) -> None:
    events = files.events_of(tmp_path, [files.host("c10d::send", 10, 20, **SEND)], rank, world_size, **info)
    result = events.loc[events["name"] == "c10d::send", ["group", "group_size"]].iloc[0].tolist()
    assert (result[0] if isinstance(result[0], str) else None, result[1]) == (expected, 2 if expected else -1)


def test_metadata_of_an_nccl_receive_reaches_its_kernel(tmp_path: Path) -> None:
    stated = {"Collective name": "recv", "dtype": "Float", "Group size": 2, "Process Group Ranks": "[4, 6]",
              "In msg nelems": 32, "Out msg nelems": 32, "Src Rank": 1}  # fmt: skip
    events = files.events_of(tmp_path, [
        files.host("record_param_comms", 10, 30, **stated), files.call("cudaLaunchKernelExC", 20, 5, 901),
        files.device("ncclDevKernel_SendRecv(x)", 60, 30, 901, **stated),
    ], rank=4, world_size=8)  # fmt: skip
    kernel = events[events["name"].str.startswith("ncclDev")].iloc[0]
    assert kernel[["collective", "group", "group_size"]].tolist() == ["recv", "[6>4]", 2]


def test_the_name_of_an_nccl_range_gives_the_channel_of_its_kernel(tmp_path: Path) -> None:
    events = files.events_of(tmp_path, [
        files.host("nccl:send 0->1", 10, 30, "user_annotation", **{"External id": 1}),
        files.host("record_param_comms", 12, 20, **{"External id": 2}),
        files.call("cudaLaunchKernelExC", 20, 5, 901), files.device("ncclDevKernel_SendRecv(x)", 60, 30, 901),
    ], rank=0, world_size=2)  # fmt: skip
    ranges = events[events["name"].str.startswith("nccl:")]
    assert ranges["group"].tolist() == ["[0>1]"]


# --- groups of gloo's collectives: the file lists the rank's groups ---------------------------------------------------


WORLD = (0, 1, 2, 3)


def ran(thread: int, begin: float, end: float, elements: float = 8.0) -> Event:
    """One all-reduce of a worker thread."""
    return annotation("gloo:all_reduce", begin, end, thread=thread, collective="all_reduce", in_elements=elements)


def rank_of(rank: int, *events: Event) -> TraceTable:
    return trace(mark(0, 0, 1000), op("aten::mm", 1, 5), *events, rank=rank, world_size=4, backend="gloo")


def result(tables: Sequence[TraceTable], groups: Mapping[int, Sequence[tuple[int, ...]]]) -> list[list[str | None]]:
    """Groups of the ranges of every rank, in order of start."""
    named = [t.events for t in name_groups(tables, groups)]
    return [
        [g if isinstance(g, str) else None for g in e.loc[e["name"].str.startswith("gloo:"), "group"]] for e in named
    ]


def test_the_only_group_is_the_group() -> None:
    tables = [rank_of(0, ran(9, 10, 20), ran(8, 30, 40))]
    assert result(tables, {0: [WORLD]}) == [["[0,1,2,3]"] * 2]
    assert result(tables, {0: [WORLD, WORLD]}) == [["[0,1,2,3]"] * 2]
    assert name_groups(tables, {0: [WORLD]})[0].events["group_size"].tolist().count(4) == 2


@pytest.mark.parametrize("groups", [{}, {0: [WORLD, (0, 1)]}])
def test_without_a_list_of_groups_and_of_several_none_is_taken(groups: Mapping[int, Sequence[tuple[int, ...]]]) -> None:
    assert result([rank_of(0, ran(9, 10, 20))], groups) == [[None]]


def test_ranges_that_already_state_a_group_keep_it() -> None:
    stated = annotation("gloo:all_reduce", 10, 20, thread=9, collective="all_reduce", group="[1,2]", group_size=2)
    assert result([rank_of(0, stated)], {0: [WORLD]}) == [["[1,2]"]]


def test_sends_are_left_to_their_channels() -> None:
    events: pd.DataFrame = name_groups(
        [rank_of(0, annotation("gloo:send", 10, 20, collective="send"))], {0: [WORLD]}
    )[0].events  # fmt: skip
    assert events["group"].isna().all()
