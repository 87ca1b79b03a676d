from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from synthetic import cluster
from toys import two_rank_graph

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.runs import RunGraph
from gnnperf.trace.public.catalog import load_catalog, recordings
from research.benchmarks._public_families import ASLEEP, FAMILIES, ONE_PASS, PublicRuns, family_of, one_step, program
from research.benchmarks.public_families import only, pooled
from tests.research.evaluation.made_records import made


def runs() -> PublicRuns:
    """Three families of toys, one recording of torchrec's asleep."""
    family = {"t/1": "torchrec", "t/2": "torchrec", "s/1": "torchrec", "r/1": "residual", "m/1": "megatron"}
    graphs = {name: RunGraph(name, two_rank_graph(), cluster(), own) for name, own in family.items()}
    return PublicRuns(graphs, family, ("s/1",), ())


def test_a_family_is_judged_and_never_learned_from() -> None:
    split = runs().split("torchrec")
    assert (split.train, split.val, split.test) == (("m/1",), ("r/1",), ("t/1", "t/2", "s/1"))
    last = runs().split("megatron")
    assert (last.train, last.val, last.test) == (("r/1",), ("t/1", "t/2"), ("m/1",))  # who sleeps teaches no one


def test_a_family_without_recordings_is_refused() -> None:
    with pytest.raises(InputError, match=r"family switch: no recording can be read.*torchrec, residual, megatron"):
        runs().split("switch")


def test_recordings_of_the_catalog_have_one_family() -> None:
    names = [result.name for result in recordings([entry for entry in load_catalog() if entry.run])]
    for name in names:
        assert sum(name.startswith(begins) for begins in FAMILIES.values()) <= 1, name
    assert all(any(name.startswith(begins) for name in names) for every in FAMILIES.values() for begins in every)
    assert {family_of(name) for name in ASLEEP} == {"torchrec"} and set(ASLEEP) <= set(names)
    assert set(ONE_PASS) <= set(FAMILIES)
    assert family_of("zoology-trace") is None


def test_one_typical_step_with_the_median_label() -> None:
    graph = two_rank_graph()
    result = one_step(RunGraph("toy", graph, cluster(), "x"))
    assert [step.makespan_us for step in result.graph.steps] == [185.0]
    assert result.graph.num_nodes == graph.num_nodes and result.workload == "x"


def test_a_program_is_its_ops_shapes_and_hardware() -> None:
    graph = two_rank_graph()
    slower = replace(graph, nodes=graph.nodes.assign(latency_us=2 * graph.nodes["latency_us"]))
    assert program(slower) == program(graph)
    wider = graph.nodes["input_dims"].astype(object).str.replace("512", "1024")
    assert program(replace(graph, nodes=graph.nodes.assign(input_dims=wider))) != program(graph)
    assert program(replace(graph, device_names=("A100",) * 2)) != program(graph)


def test_records_are_parted_and_pooled() -> None:
    record = made()
    assert record.nodes is not None
    part = only(record, ["c/1", "a/1"])
    assert part is not None and part.nodes is not None
    assert part.steps["run"].tolist() == ["a", "c"] and part.nodes["recording"].tolist() == [0, 1]
    assert part.nodes["predicted_us"].tolist() == pytest.approx([11.0, 14.0])
    assert only(record, ["x/1"]) is None
    both = pooled([record, part])
    assert both.nodes is not None
    assert both.steps["run"].tolist() == ["a", "b", "c", "a", "c"]
    assert both.nodes["recording"].tolist() == [0, 1, 2, 3, 4]
    assert isinstance(pooled([made(nodes=False)]).steps, pd.DataFrame) and pooled([made(nodes=False)]).nodes is None
    assert np.isfinite(both.steps["predicted_us"]).all()
