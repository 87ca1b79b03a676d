"""Compressed gradients of a plan: the bytes that the edit of recordings gives, casts, what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gnnperf.core.errors import InputError
from gnnperf.core.schema import NodeType
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.compression import Compression
from gnnperf.generate.transformer.plan import Reduction, Sharded, Sharding, TransformerPlan
from gnnperf.generate.transformer.sizes import stage_parameters
from gnnperf.whatif.precision import CompressMessages
from tests.generate.transformer.graphs import transfers
from tests.generate.transformer.plans import small, step_us

WIDE = {"gradient_dtype": "float32"}


def packed(compression: Mapping[str, Any], **settings: Any) -> TransformerPlan:
    sharding = settings.pop("sharding", Sharding())
    plan = small(**{"data": 4, "batch": 1, **WIDE, **settings})
    return replace(plan, compression=Compression(**compression), sharding=sharding)


@pytest.mark.parametrize("compression", [{"to": "float16"}, {"ratio": 0.01, "extra_bytes": 64.0}, {"ratio": 0.25}])
def test_messages_are_as_long_as_the_edit_makes_them(compression: dict[str, Any]) -> None:
    edited = CompressMessages("all_reduce", **compression)(build_plan(packed({}))).graph
    assert transfers(build_plan(packed(compression))) == transfers(edited)


def test_activations_of_tensor_ranks_stay_as_they_are() -> None:
    plain, result = (transfers(build_plan(packed(c, tensor=2))) for c in ({}, {"ratio": 0.5}))
    size = stage_parameters(packed({}, tensor=2), 0) * 4.0
    assert plain - result == {("all_reduce", size, 4): 1}
    assert result - plain == {("all_reduce", size / 2, 4): 1}


@pytest.mark.parametrize("settings", [{}, {"reduction": Reduction.BUCKETS, "bucket_bytes": 1.0},
                                      {"sharding": Sharding(Sharded.GRADIENTS)}])  # fmt: skip
def test_casts_are_in_the_graph_and_cost_time(settings: dict[str, Any]) -> None:
    plain, result = (build_plan(packed(c, **settings)) for c in ({}, {"to": "float16"}))

    def copies(graph: Any) -> int:
        nodes = graph.nodes
        return int(((nodes["op_name"] == "aten::copy_") & (nodes["node_type"] == NodeType.COMPUTE)).sum())

    sums = sum(n for (kind, size, _), n in transfers(plain).items() if kind != "all_gather" and size > 4.0)
    assert copies(result) - copies(plain) == 2 * sums
    assert step_us(result) > 0


def test_what_is_sent_in_the_dtype_it_has_is_not_cast() -> None:
    plan = packed({"to": "float16"}, gradient_dtype="float16")
    assert transfers(build_plan(plan)) == transfers(build_plan(packed({}, gradient_dtype="float16")))


def test_what_a_ratio_does_not_say_is_stated() -> None:
    assert sum("compressing" in sentence for sentence in build_plan(packed({"ratio": 0.5})).warnings) == 1
    assert build_plan(packed({})).warnings == build_plan(packed({}, recompute="full")).warnings


@pytest.mark.parametrize(
    "compression", [{"ratio": 0.5, "to": "float16"}, {"ratio": 2.0}, {"extra_bytes": -1.0}, {"to": "int3"}]
)
def test_bad_settings_are_refused(compression: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Compression(**compression)
