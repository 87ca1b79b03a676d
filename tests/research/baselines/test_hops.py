import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import edges_of

from gnnperf.core.schema import NUM_TEXT_FEATURES, Relation
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.data.vocabulary import FIELDS
from research.baselines.hops import SIDES, OneHop, Side, aggregate, edges, words
from research.baselines.trees import WORK, Own, joint_codes


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
