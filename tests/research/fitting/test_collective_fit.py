"""The fit finds the model that made a table; constants survive their file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from gnnperf.analytic.collective.constants import (
    CollectiveConstants,
    MeasuredLink,
    collective_models_of,
    load_collectives,
)
from gnnperf.analytic.collective.model import CollectiveModel, ProtocolSwitch, calls_of
from gnnperf.core.errors import InputError
from gnnperf.hardware import load_cluster
from research.fitting import collectives
from research.fitting.collective_fit import fit_and_judge, fit_collectives, specified_us, splits
from research.fitting.files import save_collectives
from research.tables.collective_sources import read_aiconfigurator

CLUSTER = load_cluster("hgx_h100")
TRUE = CollectiveModel(6.0, 0.8, 6e11, 3e11, 0.0, (ProtocolSwitch(1.0, 0.3, 5e4, 0.5, 2.0),
                                               ProtocolSwitch(8.0, 1.0, 2e6, 0.3, 1.5)))  # fmt: skip


def table(groups: tuple[int, ...], nodes: int = 1, link: str = "nvlink") -> pd.DataFrame:
    sizes = 2.0 ** np.arange(9, 30)
    rows = [("all_reduce", size, ranks, nodes, link, "here") for ranks in groups for size in sizes]
    result = pd.DataFrame(rows, columns=["kind", "message_bytes", "group_size", "nodes", "link", "platform"])
    kinds, ranks = result["kind"].to_numpy(object), result["group_size"].to_numpy()
    calls = calls_of(kinds, result["message_bytes"].to_numpy(), ranks, result["nodes"].to_numpy(), {})
    return result.assign(latency_us=TRUE.latency_us(calls))


def error(constants: CollectiveConstants, rows: pd.DataFrame) -> np.ndarray:
    kinds, ranks = rows["kind"].to_numpy(object), rows["group_size"].to_numpy()
    unknown = np.full(len(rows), np.nan)
    result = constants.latency_us(kinds, rows["message_bytes"].to_numpy(), ranks, rows["nodes"].to_numpy(), unknown)
    return np.abs(result / rows["latency_us"].to_numpy() - 1)


def test_a_collective_model_is_detected_again_and_predicts_another_group_size() -> None:
    fitted = fit_collectives(table((2, 4)), CLUSTER)
    assert error(fitted, table((2, 4))).max() < 0.02
    assert error(fitted, table((8,))).mean() < 0.05
    assert set(fitted.groups) == {("all_reduce", 2, 1), ("all_reduce", 4, 1)}


def test_a_wild_row_does_not_move_the_fit() -> None:
    rows = table((2, 4, 8))
    rows.loc[[5, 30], "latency_us"] *= 4
    assert np.median(error(fit_collectives(rows, CLUSTER), table((2, 4, 8)))) < 0.02


def test_each_group_takes_the_collective_model_of_its_slowest_link() -> None:
    inside, outside = table((2,)), table((4,), 2, "network").assign(latency_us=lambda t: t["latency_us"] * 10)
    fitted = fit_collectives(pd.concat([inside, outside], ignore_index=True), CLUSTER)
    assert (fitted.link(2, 1), fitted.link(16, 1), fitted.link(8, 2)) == ("nvlink", "nvlink", "network")

    def latency(kind: str, ranks: int, nodes: int) -> float:
        requested = np.array([kind], object), np.array([1e6]), np.array([ranks]), np.array([nodes]), np.array([np.nan])
        return float(fitted.latency_us(*requested)[0])

    assert latency("all_reduce", 4, 2) > 5 * latency("all_reduce", 4, 1)
    assert np.isnan(latency("broadcast", 4, 1))


def test_pairs_and_larger_groups_may_have_different_links() -> None:
    rows = pd.concat([table((2,)), table((4,), 1, "pcie")], ignore_index=True)
    fitted = fit_collectives(rows, CLUSTER)
    assert fitted.inside == ((2, "nvlink"), (4, "pcie"))
    assert [fitted.link(ranks, 1) for ranks in (2, 3, 4, 8)] == ["nvlink", "pcie", "pcie", "pcie"]


def test_far_below_what_was_measured_the_shorter_prediction_rules() -> None:
    """The table begins at 512 bytes; a specification of 3 us is below the model's start-up, one of 300 is not."""
    fitted = fit_collectives(table((4,)), CLUSTER)
    sizes, one = np.array([127.0, 127.0, 128.0]), np.ones(3, int)
    requested = np.array(["all_reduce"] * 3, object), sizes, 4 * one, one
    short, long, measured = fitted.latency_us(*requested, np.array([3.0, 300.0, 3.0]))
    assert short == 3.0
    assert 3.0 < long <= measured < 300.0


def test_constants_survive_their_file(tmp_path: Path) -> None:
    constants = CollectiveConstants(
        MeasuredLink("nvlink", 3e11, 1.9),
        MeasuredLink("", 1e10, 0.0),
        collective_models={("all_reduce", "nvlink_mesh"): TRUE},
        groups={("all_reduce", 8, 1): replace(TRUE, start_us=7.0)},
        inside=((8, "nvlink_mesh"),),
        between="network",
        rings={2: 1, 8: 6},
        provenance="a test",
    )
    save_collectives(constants, tmp_path / "collectives.yaml")
    assert load_collectives(tmp_path / "collectives.yaml") == constants


def test_the_former_key_is_read_for_one_release(tmp_path: Path) -> None:
    path, link = tmp_path / "collectives.yaml", MeasuredLink("nvlink", 3e11, 1.9)
    constants = CollectiveConstants(link, link, {("all_reduce", "nvlink"): TRUE})
    save_collectives(constants, path)
    path.write_text(path.read_text().replace("collective_models:", "laws:"))
    assert load_collectives(path) == constants


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"collective_models": {"all_reduce": {}}}, "text | text"),
        ({"collective_models": {"all_reduce | nvlink": {"start_us": 1.0}}}, "hop_us"),
        ({"groups": 3}, "groups"),
        ({"speed": 1}, "speed"),
        ({"inside": [["many", "nvlink"]]}, "many"),
        ({"measured_inside": {"medium": "nvlink", "latency_us": 1.0}}, "bandwidth_bytes_per_s"),
        ({"measured_inside": {"medium": "nvlink", "bandwidth_bytes_per_s": 0, "latency_us": 1.0}}, "above 0"),
        ({"measured_between": {"medium": 3, "bandwidth_bytes_per_s": 1, "latency_us": 1.0}}, "Allowed: text"),
    ],
)
def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path, change: dict[str, object], named: str) -> None:
    path = tmp_path / "collectives.yaml"
    link = MeasuredLink("nvlink", 3e11, 1.9)
    save_collectives(CollectiveConstants(link, link, {("all_reduce", "nvlink"): TRUE}), path)
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **change}))
    with pytest.raises(InputError) as refused:
        load_collectives(path)
    assert named in str(refused.value)


@pytest.mark.mirror
def test_unseen_sizes_and_an_unseen_group_of_a_public_table(mirror: Path) -> None:
    rows = read_aiconfigurator(mirror).rows
    own = rows[(rows["platform"] == "h100_sxm nccl 2.29.2") & (rows["kind"] == "all_gather")]
    octave = np.floor(np.log2(own["message_bytes"])).astype(int)
    sizes = error(fit_collectives(own[octave % 2 == 0], CLUSTER), own[octave % 2 == 1])
    group = error(fit_collectives(own[own["group_size"] < 8], CLUSTER), own[own["group_size"] == 8])
    assert sizes.mean() < 0.10 and group.mean() < 0.20


def measured(groups: tuple[int, ...] = (2, 4, 8)) -> pd.DataFrame:
    """An all-reduce that takes 20 us + 2 (n-1)/n S / 200 GB/s."""
    rows = [("all_reduce", size, n, "nvlink", 20 + 2 * (n - 1) / n * size / 2e5)
            for n in groups for size in 2.0 ** np.arange(10, 30)]  # fmt: skip
    return pd.DataFrame(rows, columns=["kind", "message_bytes", "group_size", "link", "latency_us"])


def test_what_was_held_out_is_by_hand_and_better_than_the_specification() -> None:
    rows = measured().assign(nodes=1)
    result = fit_and_judge(rows, CLUSTER, "a test")
    assert [(each.name, each.collective_models.num_nodes) for each in result.held_out] == [
        ("unseen sizes", 30),
        ("unseen group of 8 inside", 20),
    ]
    assert all(each.collective_models.mean_ape < 0.05 < each.specified.mean_ape for each in result.held_out)
    odd = next(splits(rows))[2]
    assert set(np.log2(odd["message_bytes"]).astype(int) % 2) == {1}
    two = rows.iloc[:1].assign(message_bytes=1e9, group_size=16, nodes=2)
    assert specified_us(two, CLUSTER) == pytest.approx(2 * 15 / 16 * 1e9 / (40e9 * 8) * 1e6, rel=0.05)


def fit(table: pd.DataFrame, out: Path) -> None:
    file = out.with_suffix(".csv")
    table.to_csv(file, index=False)
    collectives.main([str(file), "--cluster", "hgx_h100", "--out", str(out)])


def test_a_table_becomes_collective_models_that_a_cluster_uses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "collectives.yaml"
    fit(measured(), out)
    shown = capsys.readouterr().out
    assert "unseen sizes: " in shown and "unseen group of 8 inside: " in shown
    models = collective_models_of(replace(CLUSTER, collectives={"any": str(out)}))
    assert models is not None and "60 rows" in models.provenance and "collectives.csv" in models.provenance
    requested = np.array(["all_reduce"], object), np.array([2.0**22]), np.array([8]), np.array([1]), np.array([np.nan])
    assert models.latency_us(*requested)[0] == pytest.approx(20 + 1.75 * 2**22 / 2e5, rel=0.03)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="link"), "column 'link' is missing"),
        (lambda t: t.assign(kind="allreduce"), "unknown kind 'allreduce'.*all_reduce"),
        (lambda t: t.assign(latency_us="fast"), "column 'latency_us' holds no numbers"),
        (lambda t: t.assign(latency_us=0.0), "no measured collective"),
        (lambda t: t.assign(platform=["a", "b"] * 30), "several platforms: a, b"),
    ],
)
def test_a_bad_table_is_one_message(change, message, tmp_path):  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=message):
        fit(change(measured()), tmp_path / "collectives.yaml")
    assert not (tmp_path / "collectives.yaml").exists()
