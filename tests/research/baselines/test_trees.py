from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import edges_of

from gnnperf.core import NUM_TEXT_FEATURES, NodeType, Relation
from gnnperf.gnn import FIELDS, PreparedData
from gnnperf.gnn.data.numbers import WORK_NAMES
from research.baselines import trees
from research.baselines.trees import SIDES, WORK, OneHop, Own, Side, aggregate, edges, joint_codes, words

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


@pytest.mark.parametrize("row", [trees.Trees(), trees.trees_with_hops()])
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
    row = replace(trees.trees_with_hops(), settings=SMALL)
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


@given(st.integers(1, 6), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_aggregates_are_those_of_a_loop(num_nodes: int, num_edges: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    sent, ends = draw.standard_normal((num_nodes, 2)), draw.integers(0, num_nodes, (2, num_edges))
    result = aggregate(sent, ends, num_nodes, np.arange(2), np.arange(2))
    for node in range(num_nodes):
        values = sent[ends[0, ends[1] == node]]
        expected = [len(values), *values.mean(0), *values.max(0)] if len(values) else [0.0] * 5
        np.testing.assert_allclose(result[node], expected, rtol=1e-5, atol=1e-6)


def test_edges_join_the_nodes_of_the_graph(data: PreparedData) -> None:
    step = data.steps["train"][0]
    rows = np.concatenate([step.data[t].node_id.numpy() for t in WORK])  # joint row -> row of the node table
    ours = {tuple(rows[pair]) for pair in edges(step.data, Side(str(Relation.JOINS), False)).T}
    assert ours == edges_of(step.graph, Relation.JOINS)
    assert len(ours) == 2


def test_the_word_before_is_the_op_before_on_the_lane(data: PreparedData) -> None:
    step = data.steps["train"][0].data
    own = Own().columns(data)
    ops = joint_codes(step, data.vocabulary)[:, FIELDS.index("op_name")]
    column = SIDES.index(Side(str(Relation.FOLLOWS), False))
    ends = edges(step, SIDES[column])
    result = words(step, own)
    np.testing.assert_array_equal(result[ends[1], column], ops[ends[0]])
    isolated = np.setdiff1d(np.arange(len(ops)), ends[1])
    assert len(isolated) > 0
    assert (result[isolated, column] == -1).all()


def test_columns_say_what_they_hold(data: PreparedData) -> None:
    columns = OneHop().columns(data)
    matrix = columns.matrix(data.steps["val"][0].data)
    num_own = len(WORK_NAMES) + 1 + len(FIELDS)
    numbers = sum(1 + len(mean) + len(most) for mean, most in zip(columns.mean, columns.maximum, strict=True))
    assert matrix.shape[1] == num_own + len(SIDES) + numbers
    assert columns.categorical == tuple(range(len(WORK_NAMES), num_own + len(SIDES)))
    codes = matrix[:, list(columns.categorical)]
    np.testing.assert_array_equal(codes, np.round(codes))


def test_columns_leave_out_what_states_nothing(data: PreparedData) -> None:
    columns = OneHop().columns(data)
    first_text = len(WORK_NAMES) - NUM_TEXT_FEATURES
    varying = set(np.concatenate(columns.mean).tolist())
    assert varying
    assert max(varying) < first_text
    assert WORK_NAMES.index("log_world_size") not in varying  # one value in all runs
    joins = SIDES.index(Side(str(Relation.JOINS), False))
    follows = SIDES.index(Side(str(Relation.FOLLOWS), False))
    assert len(columns.maximum[joins]) > 0  # two ranks join a collective
    assert len(columns.maximum[follows]) == 0  # one node before: its maximum is its mean


def test_the_order_of_nodes_does_not_matter(data: PreparedData) -> None:
    columns, step = OneHop().columns(data), data.steps["train"][0].data
    rows = columns.matrix(step)
    shuffled = step.clone()
    order = np.random.default_rng(0).permutation(len(step["host"].x))  # new row i is the old row order[i]
    new_row = np.argsort(order)
    for name in ("x", "codes"):
        shuffled["host"][name] = step["host"][name][order]
    for edge_type in step.edge_types:
        ends = step[edge_type].edge_index.numpy().copy()
        for side, node_type in enumerate((edge_type[0], edge_type[2])):
            ends[side] = new_row[ends[side]] if node_type == "host" else ends[side]
        shuffled[edge_type].edge_index = torch.from_numpy(ends)
    result = columns.matrix(shuffled)
    num_host = len(order)
    np.testing.assert_allclose(result[:num_host], rows[:num_host][order], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result[num_host:], rows[num_host:], rtol=1e-5, atol=1e-6)
