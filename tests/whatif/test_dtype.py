"""Another dtype for the ops of one layer."""

from __future__ import annotations

import pytest
from pandas.testing import assert_frame_equal

from gnnperf.core.errors import InputError
from gnnperf.whatif import ChangeDtype, apply
from tests.whatif.layers import GRADIENT_IN, LINEAR, LOSS, TRANSFER, UPDATE, layer


def test_mixed_changes_matrix_products() -> None:
    graph = layer(2, 3, 5, 7)
    result = ChangeDtype("float32", "bfloat16")(graph)
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
    nodes = ChangeDtype("float32", "float64", "all")(graph).graph.nodes
    assert nodes["message_bytes"][TRANSFER] == 2 * graph.nodes["message_bytes"][TRANSFER]
    assert nodes["bytes"][LOSS] == 2 * graph.nodes["bytes"][LOSS]


def test_embedding_keeps_its_integers() -> None:
    """Indices of 8 bytes stay; rows read and written halve."""
    nodes = ChangeDtype("float32", "bfloat16", "all")(layer(2, 3, 5, 7)).graph.nodes
    assert nodes["bytes"][0] == 8 * 6 + 2 * (2 * 6 * 5)


def test_there_and_back() -> None:
    graph = layer(2, 3, 5, 7)
    result = apply(graph, [ChangeDtype("float32", "float16"), ChangeDtype("float16", "float32")]).graph.nodes
    assert result["bytes"].tolist() == pytest.approx(graph.nodes["bytes"].tolist(), nan_ok=True)
    assert result["dtype"].astype(object).equals(graph.nodes["dtype"].astype(object))


def test_the_same_dtype_changes_nothing() -> None:
    graph = layer(2, 3, 5, 7)
    assert_frame_equal(ChangeDtype("float32", "float32")(graph).graph.nodes, graph.nodes)


def test_refusals() -> None:
    with pytest.raises(InputError, match="no op of dtype 'float16'"):
        ChangeDtype("float16", "float32")(layer(2, 3, 5, 7))
    with pytest.raises(InputError, match="bfloat16"):
        ChangeDtype("float32", "bf16")
    with pytest.raises(InputError, match="mixed, all"):
        ChangeDtype("float32", "bfloat16", "some")
