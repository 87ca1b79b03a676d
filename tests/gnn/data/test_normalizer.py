import torch
from torch_geometric.data import HeteroData

from gnnperf.gnn.data.normalizer import COLLECTIVE, KIND, RANGED, fit_normalizer, widened
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.vocabulary import FIELDS


def graph(rows: list[list[float]]) -> HeteroData:
    data = HeteroData()
    data["host"].x = torch.tensor(rows).reshape(-1, 2)
    data["link"].x = torch.zeros(0, 3)
    return data


def test_mean_and_spread_over_all_graphs_by_hand() -> None:
    normalizer = fit_normalizer([graph([[0.0, 5.0]]), graph([[2.0, 5.0], [4.0, 5.0]])])
    assert normalizer.mean["host"].tolist() == [2.0, 5.0]
    assert torch.isclose(normalizer.scale["host"][0], torch.tensor((8 / 3) ** 0.5))
    data = graph([[2.0, 99.0], [1e9, 5.0]])
    x = normalizer.apply(data)["host"].x
    largest = (4.0 - 2.0) / (8 / 3) ** 0.5  # in training; constant there: stays 0
    assert torch.allclose(x, torch.tensor([[0.0, 0.0], [largest, 0.0]]))
    assert data["host"].x[1, 0] == 1e9  # the original is untouched


def test_a_type_without_nodes() -> None:
    normalizer = fit_normalizer([graph([[1.0, 2.0]])])
    assert normalizer.apply(graph([[1.0, 2.0]]))["link"].x.shape == (0, 3)
    assert normalizer.mean["link"].tolist() == [0.0, 0.0, 0.0]


def collectives(*places: tuple[float, float, float], kinds: list[int] | None = None) -> HeteroData:
    """Rate of the link, ranks of the group, size of the message; all of one kind without `kinds`."""
    data = HeteroData()
    data[COLLECTIVE].x = torch.zeros(len(places), len(WORK_NAMES))
    data[COLLECTIVE].codes = torch.zeros(len(places), len(FIELDS), dtype=torch.int64)
    data[COLLECTIVE].codes[:, KIND] = torch.tensor(kinds or [1] * len(places))
    for row, place in enumerate(places):
        data[COLLECTIVE].x[row, [RANGED[-2], RANGED[0], 0]] = torch.tensor(place)
    return data


def test_a_collective_outside_the_links_and_groups_of_training_is_reported() -> None:
    """Trained on links from 1 to 3 and one size of group; its message may be of any size."""
    normalizer = fit_normalizer([collectives((1.0, 2.0, 5.0), (3.0, 2.0, 6.0))])
    requested = collectives((1.0, 2.0, 5.0), (2.0, 2.0, 99.0), (0.5, 2.0, 5.0), (3.5, 2.0, 5.0), (2.0, 4.0, 5.0))
    assert normalizer.apply(requested)[COLLECTIVE].known_collective_model.tolist() == [True, True, False, False, False]


def test_each_kind_of_collective_has_a_range_of_its_own() -> None:
    """Kind 1 ran on links 1 to 3, kind 2 on link 3 only; kind 3 is new, in this training or altogether."""
    normalizer = fit_normalizer([collectives((1.0, 2.0, 5.0), (3.0, 2.0, 5.0), (3.0, 2.0, 5.0), kinds=[1, 1, 2])])
    requested = collectives(*[(rate, 2.0, 5.0) for rate in (1.0, 1.0, 3.0, 3.0)], kinds=[1, 2, 2, 3])
    assert normalizer.apply(requested)[COLLECTIVE].known_collective_model.tolist() == [True, False, True, False]
    both = widened(normalizer, fit_normalizer([collectives((2.0, 2.0, 5.0), kinds=[3])]))
    assert both.apply(requested)[COLLECTIVE].known_collective_model.tolist() == [True, False, True, False]
    again = collectives((2.0, 2.0, 5.0), kinds=[3])
    assert both.apply(again)[COLLECTIVE].known_collective_model.tolist() == [True]


def test_scales_of_an_earlier_training_stay_and_ranges_widen_by_hand() -> None:
    """The first feature varied before, the second only now; links came later."""
    earlier = fit_normalizer([graph([[0.0, 5.0], [4.0, 5.0]])])
    new = graph([[3.0, 6.0], [9.0, 8.0]])
    new["link"].x = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 5.0]])
    both = widened(earlier, fit_normalizer([new]))
    assert both.mean["host"].tolist() == [2.0, 7.0]
    assert both.scale["host"].tolist() == [2.0, 1.0]
    assert (both.low["host"].tolist(), both.high["host"].tolist()) == ([0.0, 5.0], [9.0, 8.0])
    assert both.apply(new)["host"].x.tolist() == [[0.5, -1.0], [3.5, 1.0]]
    assert both.low["link"].tolist() == [1.0, 2.0, 3.0]
    assert not earlier.occurred("link") and both.occurred("link")
    assert both.constant("link").tolist() == [True, True, False]


def test_a_type_that_later_runs_lack_keeps_its_range() -> None:
    with_links = graph([[0.0, 1.0]])
    with_links["link"].x = torch.tensor([[1.0, 2.0, 3.0]])
    both = widened(fit_normalizer([with_links]), fit_normalizer([graph([[2.0, 1.0]])]))
    assert both.low["link"].tolist() == both.high["link"].tolist() == [1.0, 2.0, 3.0]


def test_a_feature_widens_by_three_of_its_scales_at_most() -> None:
    """It varied by a hundredth; what is a hundred scales away would be answered by a line drawn through two points."""
    earlier = fit_normalizer([graph([[1.00, 5.0], [1.02, 5.0]])])
    both = widened(earlier, fit_normalizer([graph([[0.99, 5.0], [2.0, 5.0]])]))
    assert torch.allclose(both.low["host"], torch.tensor([0.99, 5.0]))
    assert torch.allclose(both.high["host"], torch.tensor([1.05, 5.0]))
    assert torch.allclose(both.apply(graph([[2.0, 5.0]]))["host"].x, torch.tensor([[4.0, 0.0]]), atol=1e-4)


def test_a_constant_that_is_another_one_now_varies_between_the_two() -> None:
    earlier, later = fit_normalizer([graph([[1.0, 5.0]])]), fit_normalizer([graph([[1.0, 9.0]])])
    both = widened(earlier, later)
    assert (both.mean["host"][1].item(), both.scale["host"][1].item()) == (7.0, 2.0)
    assert both.apply(graph([[1.0, 5.0], [1.0, 9.0]]))["host"].x.tolist() == [[0.0, -1.0], [0.0, 1.0]]


def test_a_collective_of_a_later_training_is_known_however_far_it_is() -> None:
    earlier = fit_normalizer([collectives((1.0, 2.0, 5.0), (1.1, 2.1, 5.0))])
    both = widened(earlier, fit_normalizer([collectives((4.0, 8.0, 5.0))]))
    requested = collectives((1.0, 2.0, 5.0), (4.0, 8.0, 5.0), (4.5, 8.0, 5.0))
    assert both.apply(requested)[COLLECTIVE].known_collective_model.tolist() == [True, True, False]
