from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gnnperf.core.errors import InputError
from research.evaluation.records import read_record, read_records, same_question, write_record
from research.evaluation.row_errors import node_figures, step_figures
from research.evaluation.run_sums import node_gmae, node_gmae_by_time, step_geomean
from tests.research.evaluation.made_records import made


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    for record in (made(), made("pooled", nodes=False), made("op-constant", seed=None)):
        path = write_record(record, tmp_path)
        result = read_record(path)
        assert result.origin == record.origin
        assert result.fit_s == 1.5
        pd.testing.assert_frame_equal(result.steps, record.steps, check_dtype=False)
        if record.nodes is None or result.nodes is None:
            assert record.nodes is None and result.nodes is None and np.isnan(result.coverage)
        else:
            pd.testing.assert_frame_equal(result.nodes, record.nodes)
    assert (tmp_path / "size" / "op-constant" / "fixed.parquet").is_file()
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_broken_record_is_named_and_how_to_make_it_again(tmp_path: Path) -> None:
    path = write_record(made(), tmp_path)
    whole = path.read_bytes()
    for content in (b"", b"not parquet", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"gnn/0\.parquet: is no cell that can be read .* delete it"):
            read_records(tmp_path)
    pd.DataFrame({"x": [1]}).to_parquet(path)
    with pytest.raises(InputError, match="is no cell"):
        read_record(path)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0])
def test_a_prediction_that_is_none_is_refused(wrong: float) -> None:
    record = made()
    for name in ("steps", "nodes"):
        table = getattr(record, name)
        with pytest.raises(InputError, match="cell size/gnn: a predicted latency is not finite"):
            replace(record, **{name: table.assign(predicted_us=[1.0, wrong, 1.0])})  # type: ignore[arg-type]
        with pytest.raises(InputError, match="a measured latency is not positive"):
            replace(record, **{name: table.assign(measured_us=[1.0, 0.0, 1.0])})  # type: ignore[arg-type]


def test_records_of_one_split_concern_one_question() -> None:
    same_question([made(), made("mlp"), made("mlp", split="link", data="e")])
    with pytest.raises(InputError, match="row mlp: fitted on other data"):
        same_question([made(), made("mlp", data="e")])
    other = made("mlp")
    with pytest.raises(InputError, match="judged on other measurements"):
        same_question([made(), replace(other, steps=other.steps.assign(measured_us=999.0))])
    assert other.nodes is not None
    with pytest.raises(InputError, match="judged on other measurements"):
        same_question([made(), replace(other, nodes=other.nodes.iloc[:2])])


def test_the_pooled_metric_by_hand() -> None:
    """Errors 10, 20, 40 % of one seed and 20, 20, 20 % of another: nodes alike, by time and of steps."""
    records = [made(), made(errors=(0.2, 0.2, 0.2), seed=1)]
    by_hand = (0.1 * 0.2 * 0.4 * 0.2**3) ** (1 / 6)
    for metric in (node_gmae, node_gmae_by_time, step_geomean):
        result = metric(records)
        assert result is not None
        assert result.value == pytest.approx(by_hand, rel=1e-5)
    longer = made()
    assert longer.nodes is not None
    longer = replace(longer, nodes=longer.nodes.assign(predicted_us=[11.0, 12.0, 42.0], measured_us=[10.0, 10.0, 30.0]))
    weighted = node_gmae_by_time([longer])
    assert weighted is not None
    assert weighted.value == pytest.approx((0.1 * 0.2 * 0.4**3) ** 0.2, rel=1e-5)
    assert node_gmae([made(nodes=False)]) is None


def test_figures_by_hand() -> None:
    steps, nodes = step_figures([made()]), node_figures([made()])
    assert nodes is not None
    assert (steps.count, nodes.count) == (3, 3)
    assert steps.mean == pytest.approx(0.7 / 3)
    assert steps.median == pytest.approx(0.2)
    assert steps.p90 == pytest.approx(0.36)
    assert (steps.max, nodes.max) == pytest.approx((0.4, 0.4), rel=1e-5)
    assert steps.mean_log == pytest.approx(np.log([1.1, 1.2, 1.4]).mean())
    assert steps.bias == pytest.approx((1.1 * 1.2 * 1.4) ** (1 / 3) - 1)
    assert steps.low < steps.gmae < steps.high
    assert np.isnan(steps.by_time)
    assert node_figures([made(nodes=False)]) is None


def test_a_prediction_of_zero_is_an_error_of_one_hundred_percent() -> None:
    result = node_figures([made(errors=(-1.0, 0.0, 0.0))])
    assert result is not None
    assert result.max == 1.0
    assert result.mean_log == pytest.approx(np.log(1000) / 3)
    assert result.bias == pytest.approx(0.1 - 1)  # a thousandth, once in three
