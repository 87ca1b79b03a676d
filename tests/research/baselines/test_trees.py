from dataclasses import replace

import numpy as np
import pytest
import torch

from gnnperf.core.schema import NodeType
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.data.vocabulary import FIELDS
from research.baselines import trees
from research.baselines.hops import trees_with_hops

SMALL = {**trees.TREE_SETTINGS, "num_leaves": 4, "min_child_samples": 1, "feature_fraction": 1.0}


def test_rows_are_the_features_and_codes_of_the_network(data: PreparedData) -> None:
    step = data.steps["val"][0].data
    rows = trees.Own().columns(data).matrix(step)
    first = [0, *np.cumsum([len(step[t].x) for t in trees.WORK])]
    for i, node_type in enumerate(trees.WORK):
        of_type = rows[first[i] : first[i + 1]]
        np.testing.assert_array_equal(of_type[:, : len(WORK_NAMES)], step[node_type].x.numpy())
        assert (of_type[:, len(WORK_NAMES)] == i).all()


def test_words_of_different_types_never_share_a_code(data: PreparedData) -> None:
    step = data.steps["val"][0].data
    codes = trees.joint_codes(step, data.vocabulary)[:, FIELDS.index("op_name")]
    num_host = len(step["host"].x)
    host, other = set(codes[:num_host].tolist()), set(codes[num_host:].tolist())
    assert host
    assert other
    assert host.isdisjoint(other)
    np.testing.assert_array_equal(codes[:num_host], step["host"].codes[:, 0].numpy())  # the first type's stay


@pytest.mark.parametrize("row", [trees.Trees(), trees_with_hops()])
def test_trees_beat_the_base_they_start_from(row: trees.Trees, data: PreparedData) -> None:
    estimate = replace(row, settings=SMALL).fit(data, seed=0)
    step = data.steps["test"][0]
    gemm = step.data["compute"]
    latency_us, measured = estimate.latency_us(step), gemm.latency_us.numpy()
    off = np.abs(np.log(latency_us[gemm.node_id.numpy()] / measured)).max()
    assert off < 0.5 * np.abs(np.log(gemm.base_us.numpy() / measured)).min()


def test_comm_nodes_keep_their_base_and_hardware_takes_no_time(data: PreparedData) -> None:
    step = data.steps["test"][0]
    result = trees.Trees(settings=SMALL).fit(data, seed=0).latency_us(step)
    comm = step.data[str(NodeType.COMM)]
    np.testing.assert_array_equal(result[comm.node_id.numpy()], comm.base_us.numpy())
    hardware = step.nodes["node_type"].isin([NodeType.DEVICE, NodeType.LINK]).to_numpy()
    assert (result[hardware] == 0).all()
    assert (result[step.data["compute"].node_id.numpy()] > 0).all()


def test_the_test_part_is_never_seen(data: PreparedData) -> None:
    step = data.steps["val"][0]
    without = PreparedData(**{**vars(data), "steps": {**data.steps, "test": ()}})
    row = replace(trees_with_hops(), settings=SMALL)
    one, two = (row.fit(d, seed=0).latency_us(step) for d in (data, without))
    np.testing.assert_array_equal(one, two)


def test_longer_nodes_weigh_more(data: PreparedData) -> None:
    made = trees._dataset(trees._lightgbm(), trees.Own().columns(data), data.steps["train"], trees.LABELS[0], None)
    share, target = (
        np.concatenate([trees.work_values(s.data, name) for s in data.steps["train"]])
        for name in ("time_share", "target")
    )
    np.testing.assert_allclose(made.get_weight(), 0.5 + 0.5 * np.sqrt(share[np.isfinite(target)]), rtol=1e-6)
    assert torch.isfinite(data.steps["train"][0].data["host"].target).all()
