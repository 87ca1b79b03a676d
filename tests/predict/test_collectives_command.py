"""`gnnperf collectives fit`: from a table to laws that a prediction uses; one message for bad input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from gnnperf import cli
from gnnperf.analytic.collective.constants import collective_models_of, load_collectives
from gnnperf.hardware import load_cluster
from gnnperf.hardware.yaml_spec import conf_dir
from gnnperf.predict.collective_fit import fit_and_judge, specified_us, splits
from gnnperf.record.calibrate.ops_file import COLUMNS, parquet_bytes

HGX = load_cluster("hgx_h100")


def table(groups: tuple[int, ...] = (2, 4, 8)) -> pd.DataFrame:
    """An all-reduce that takes 20 us + 2 (n-1)/n S / 200 GB/s."""
    rows = [("all_reduce", size, n, "nvlink", 20 + 2 * (n - 1) / n * size / 2e5)
            for n in groups for size in 2.0 ** np.arange(10, 30)]  # fmt: skip
    return pd.DataFrame(rows, columns=["kind", "message_bytes", "group_size", "link", "latency_us"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    table().to_csv(tmp_path / "mine.csv", index=False)
    return tmp_path / "mine.csv"


def fit(file: Path, out: Path, *more: str, cluster: str = "hgx_h100") -> int:
    return cli.main(["collectives", "fit", str(file), "--cluster", cluster, "--out", str(out), *more])


def test_a_table_becomes_collective_models_that_a_cluster_uses(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = file.with_name("laws.yaml")
    assert fit(file, out) == 0
    shown = capsys.readouterr().out
    assert "unseen sizes: " in shown and "unseen group of 8 inside: " in shown
    collective_models = collective_models_of(replace(HGX, collectives={"any": str(out)}))
    assert (
        collective_models is not None
        and "60 rows" in collective_models.provenance
        and "mine.csv" in collective_models.provenance
    )
    requested = np.array(["all_reduce"], object), np.array([2.0**22]), np.array([8]), np.array([1]), np.array([np.nan])
    assert collective_models.latency_us(*requested)[0] == pytest.approx(20 + 1.75 * 2**22 / 2e5, rel=0.03)


def test_what_was_held_out_is_by_hand_and_better_than_the_specification() -> None:
    rows = table().assign(nodes=1)
    result = fit_and_judge(rows, HGX, "a test")
    assert [(each.name, each.collective_models.num_nodes) for each in result.held_out] == [
        ("unseen sizes", 30),
        ("unseen group of 8 inside", 20),
    ]
    assert all(each.collective_models.mean_ape < 0.05 < each.specified.mean_ape for each in result.held_out)
    odd = next(splits(rows))[2]
    assert set(np.log2(odd["message_bytes"]).astype(int) % 2) == {1}
    two = rows.iloc[:1].assign(message_bytes=1e9, group_size=16, nodes=2)
    assert specified_us(two, HGX) == pytest.approx(2 * 15 / 16 * 1e9 / (40e9 * 8) * 1e6, rel=0.05)


def test_a_calibration_is_fitted_by_the_same_command(tmp_path: Path) -> None:
    empty = dict.fromkeys(COLUMNS)
    rows = [{**empty, "op": row.kind, "kind": "collective", "message_bytes": row.message_bytes, "link": "lo",
             "ranks": str(list(range(int(str(row.group_size))))), "device": "a cpu", "latency_us": row.latency_us}
            for row in table((2, 4)).itertuples()]  # fmt: skip
    (tmp_path / "ops.parquet").write_bytes(parquet_bytes([*rows, {**empty, "op": "aten::mm", "kind": "op"}]))
    mine = yaml.safe_load((conf_dir("cluster") / "loopback_cpu.yaml").read_text()) | {"device": "calibrated_mine"}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(mine))  # names a device that the catalog lacks
    device = str(conf_dir("hardware") / "cpu_generic.yaml")
    requested = tmp_path / "ops.parquet", tmp_path / "laws.yaml"
    assert fit(*requested, "--hardware", device, cluster=str(tmp_path / "cluster.yaml")) == 0
    collective_models = load_collectives(tmp_path / "laws.yaml")
    assert (collective_models.inside, collective_models.measured_inside.medium) == (((4, "loopback"),), "loopback")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="link"), "column 'link' is missing"),
        (lambda t: t.assign(kind="allreduce"), "unknown kind 'allreduce'.*all_reduce"),
        (lambda t: t.assign(latency_us="fast"), "column 'latency_us' holds no numbers"),
        (lambda t: t.assign(latency_us=0.0), "no measured collective"),
        (lambda t: t.assign(platform=["a", "b"] * 30), "several platforms.*a, b.*--platform"),
    ],
)
def test_a_bad_table_is_one_message(change, message, tmp_path, capsys):  # type: ignore[no-untyped-def]
    change(table()).to_csv(tmp_path / "bad.csv", index=False)
    assert fit(tmp_path / "bad.csv", tmp_path / "laws.yaml") == 2
    assert not (tmp_path / "laws.yaml").exists()
    shown = capsys.readouterr().err
    assert pd.Series([shown]).str.contains(message).all(), shown


def test_one_platform_of_several(tmp_path: Path) -> None:
    table().assign(platform=["a"] * 40 + ["b"] * 20).to_parquet(tmp_path / "two.parquet")
    assert fit(tmp_path / "two.parquet", tmp_path / "laws.yaml", "--platform", "b") == 0
    assert load_collectives(tmp_path / "laws.yaml").inside == ((8, "nvlink"),)


def test_collective_models_that_are_worse_than_the_specification_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = table()
    odd = np.log2(rows["message_bytes"]).astype(int) % 2 == 1
    noisy = rows.assign(latency_us=rows["latency_us"].where(odd, rows["latency_us"] * 20))
    noisy.to_csv(tmp_path / "noisy.csv", index=False)
    assert fit(tmp_path / "noisy.csv", tmp_path / "laws.yaml") == 0
    assert "warning: on unseen sizes the specification is better" in capsys.readouterr().out


def test_files_that_cannot_be(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = file.with_name("laws.yaml")
    out.write_text("mine")
    assert fit(file, out) == 2 and out.read_text() == "mine"
    assert fit(file, file.with_name("laws.txt")) == 2
    assert fit(file, file.with_name("none") / "laws.yaml") == 2
    assert fit(file.with_name("none.csv"), file.with_name("b.yaml")) == 2
    assert fit(file, file.with_name("c.yaml"), cluster="hgx_h10") == 2
    assert "did you mean hgx_h100" in capsys.readouterr().err
    assert fit(file, out, "--overwrite") == 0 and "laws" in yaml.safe_load(out.read_text())
