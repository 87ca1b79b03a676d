"""Another dtype for the ops of one layer."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from gnnperf.core.errors import InputError
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware import load_cluster
from gnnperf.whatif import ChangeDevice, ChangeDtype, CompressMessages, Edit, apply, cluster_after
from tests.whatif.programs import ARRIVE, EXIT, GRADIENT_IN, LINEAR, LOSS, SEND, TRANSFER, UPDATE, layer


def test_mixed_changes_matrix_products() -> None:
    graph = layer(2, 3, 5, 7)
    result = ChangeDtype("bfloat16")(graph)
    nodes = result.graph.nodes
    assert nodes["dtype"][[LINEAR, GRADIENT_IN]].tolist() == ["bfloat16", "bfloat16"]
    assert nodes["bytes"][LINEAR] == 2 * (6 * 5 + 7 * 5 + 7 + 6 * 7)
    assert nodes["flops"][LINEAR] == graph.nodes["flops"][LINEAR]
    assert nodes["dtype"][[LOSS, UPDATE]].tolist() == ["float32", "float32"]
    assert nodes["latency_us"][LINEAR] != nodes["latency_us"][LINEAR]
    assert nodes["latency_us"][LOSS] == 5.0
    assert any("cast" in sentence for sentence in result.unknown)


def test_all_changes_messages_too() -> None:
    graph = layer(2, 3, 5, 7)
    graph.nodes.loc[TRANSFER, "dtype"] = "float32"
    nodes = ChangeDtype("float64", scope="all")(graph).graph.nodes
    assert nodes["message_bytes"][TRANSFER] == 2 * graph.nodes["message_bytes"][TRANSFER]
    assert nodes["bytes"][LOSS] == 2 * graph.nodes["bytes"][LOSS]
    assert nodes["bytes"][0] == 8 * 6 + 8 * (2 * 6 * 5)  # indices of 8 bytes stay; rows read and written double


def test_there_and_back() -> None:
    graph = layer(2, 3, 5, 7)
    result = apply(graph, [ChangeDtype("float16"), ChangeDtype("float32", of="float16")]).graph.nodes
    assert result["bytes"].tolist() == pytest.approx(graph.nodes["bytes"].tolist(), nan_ok=True)
    assert result["dtype"].astype(object).equals(graph.nodes["dtype"].astype(object))


def test_the_same_dtype_changes_nothing() -> None:
    graph = layer(2, 3, 5, 7)
    assert_frame_equal(ChangeDtype("float32")(graph).graph.nodes, graph.nodes)


MESSAGE = 4.0 * (7 * 5 + 7)  # the flat gradient


@pytest.mark.parametrize(
    ("device", "dtype", "fits"),
    [
        ("h100_sxm", "float8_e4m3fn", True), ("v100_sxm2_32gb", "float8_e4m3fn", False),
        ("a100_sxm_80gb", "float8_e4m3fn", False), ("v100_sxm2_32gb", "bfloat16", False),
        ("a100_sxm_80gb", "bfloat16", True), ("epyc_7742", "bfloat16", True),
    ],
)  # fmt: skip
def test_a_dtype_needs_a_device_with_units_for_it(device: str, dtype: str, fits: bool) -> None:
    """Whatever the order of the edits, the device that the edited step is predicted for decides."""
    both: list[Edit] = [ChangeDtype(dtype), ChangeDevice(device)]
    for edits in (both, both[::-1]):
        edited = apply(layer(2, 3, 5, 7), edits)
        if fits:
            assert cluster_after(load_cluster("dgx1_v100"), edited.hardware).device.name == device
        else:
            with pytest.raises(InputError, match=f"{device} has no units for {dtype}.*float16"):
                cluster_after(load_cluster("hgx_h100"), edited.hardware)


def gradients(dtype: str = "float32") -> ExecutionGraph:
    graph = layer(2, 3, 5, 7, sends=False)
    sent = np.isin(np.arange(len(graph.nodes)), [ARRIVE, EXIT, TRANSFER])
    values = np.where(sent, dtype, graph.nodes["dtype"].astype(object))
    return replace(graph, nodes=graph.nodes.assign(dtype=pd.Categorical(values)))


def test_a_ratio_and_what_comes_with_each_message() -> None:
    graph = gradients()
    result = CompressMessages(ratio=0.25, extra_bytes=8.0)(graph)
    nodes = result.graph.nodes
    assert nodes["message_bytes"][[ARRIVE, EXIT, TRANSFER]].tolist() == [MESSAGE / 4 + 8] * 3
    assert np.isnan(nodes["latency_us"][TRANSFER])
    assert np.flatnonzero(result.touched).tolist() == [ARRIVE, EXIT, TRANSFER]
    untouched = [LINEAR, SEND]
    assert nodes.loc[untouched].equals(graph.nodes.loc[untouched])
    assert graph.nodes["message_bytes"][TRANSFER] == MESSAGE
    assert any("decompressing" in sentences for sentences in result.unknown) and any(
        "added up" in sentences for sentences in result.unknown
    )


def test_a_dtype_halves_floats_of_twice_its_size() -> None:
    nodes = CompressMessages(to="float16")(gradients()).graph.nodes
    assert nodes["message_bytes"][TRANSFER] == MESSAGE / 2 and nodes["dtype"][TRANSFER] == "float16"
    assert nodes["dtype"][LINEAR] == gradients().nodes["dtype"][LINEAR]


def test_what_is_small_already_is_refused_and_what_is_unknown_stated() -> None:
    with pytest.raises(InputError, match="makes smaller"):
        CompressMessages(to="float16")(gradients("bfloat16"))
    graph = gradients()
    graph.nodes.loc[ARRIVE, "message_bytes"] = np.nan
    unknown = CompressMessages(ratio=0.5)(graph).unknown
    assert any(sentence.startswith("how many bytes messages have (1 ") for sentence in unknown)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ChangeDtype("float32", of="float16")(layer(2, 3, 5, 7)), r"no matrix product.* of dtype 'float16'"),
        (lambda: ChangeDtype("bf16"), "bfloat16"),
        (lambda: ChangeDtype("bfloat16", scope="some"), "mixed, all"),
        (lambda: CompressMessages(), "one of ratio, to"),
        (lambda: CompressMessages(ratio=0.5, to="float16"), "both given"),
        (lambda: CompressMessages(ratio=0.0), "above 0"),
        (lambda: CompressMessages(ratio=1.5), "at most 1"),
        (lambda: CompressMessages(to="int4"), "bfloat16"),
        (lambda: CompressMessages(ratio=0.5, extra_bytes=-1.0), "0 or more"),
        (lambda: CompressMessages("allreduce", ratio=0.5)(gradients()), "no 'allreduce'.*all_reduce.*'all_reduce'"),
        (lambda: CompressMessages(ratio=0.5, phase="forward")(gradients()), "in forward"),
    ],
)
def test_refusals(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_ratios_compose(first: float, second: float) -> None:
    both = apply(gradients(), [CompressMessages(ratio=first), CompressMessages(ratio=second)])
    assert both.graph.nodes["message_bytes"][TRANSFER] == pytest.approx(MESSAGE * first * second)
