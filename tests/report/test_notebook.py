"""`gnnperf.predict(...)`: what docs/how-to/python.md shows works, answers as cards, tables and figures."""

import importlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

import gnnperf
from gnnperf.core import PREDICTION_COLUMNS, InputError
from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.report.notebook import Estimate
from tests.predict.predictions import GEMM_1, toy_prediction
from tests.trace.kineto_files import five_steps, write

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "python.md"


@pytest.fixture(name="trace")
def _trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five steps of 200 us on one V100, as trace.json.gz of the working folder; no graph is kept outside of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return write(tmp_path / "trace.json.gz", five_steps(), packed=True)


@pytest.fixture(name="toy")
def _toy() -> Estimate:
    """185 us, of which nothing knows the second gemm."""
    return Estimate(toy_prediction({GEMM_1: float("nan")}))


def test_the_snippet_of_the_page_runs(trace: Path) -> None:
    block = PAGE.read_text().split("## Predict\n\n")[1].split("\n\n`gnnperf.predict` takes")[0]
    lines = [line.removeprefix("    ") for line in block.splitlines()]
    names: dict[str, object] = {}
    exec("\n".join(lines), names)
    result = names["step"]
    assert isinstance(result, Estimate)
    assert result.step.hardware == "h100_sxm"
    assert result.step.whatif is not None
    assert sorted(p.name for p in (trace.parent / "outputs" / "h100").iterdir()) == [
        "nodes.parquet", "prediction.json", "report.html", "timeline.json.gz",
    ]  # fmt: skip


def test_importing_gnnperf_loads_nothing_else() -> None:
    code = "import sys, gnnperf; print(*sorted(m for m in sys.modules if m.startswith('gnnperf') or m == 'pandas'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["gnnperf"]
    with pytest.raises(AttributeError, match="no attribute 'predikt'"):
        _ = gnnperf.predikt


def test_the_slack_is_the_function_and_stays_a_slack(trace: Path) -> None:
    margin = importlib.import_module("gnnperf.predict")
    result = gnnperf.predict(trace, mode="replay", findings=False)
    assert result.step_time_us == pytest.approx(200.0, rel=0.05)
    assert gnnperf.predict is margin
    assert margin.StepPrediction is StepPrediction
    assert list(trace.parent.glob("outputs*")) == []


def test_a_plan_with_words_and_settings_as_on_the_command_line() -> None:
    small = {"model": {"layers": 2}, "parallelism": {"data": 2}, "schedule": {"global_batch": 32}}
    result = gnnperf.predict(plan="gpt2_345m", hardware="a100_sxm_80gb", mode="analytic", memory=False, findings=False,
                             words=[f"plan.{a}.{b}={v}" for a, of in small.items() for b, v in of.items()])  # fmt: skip
    assert result.step.prediction.graph.world_size == 2
    assert result.findings == ()


def test_a_device_is_a_mapping_or_a_choice_with_changes() -> None:
    whole = yaml.safe_load((ROOT / "conf" / "hardware" / "a100_sxm_80gb.yaml").read_text(encoding="utf-8"))
    given: list[tuple[dict[str, object], list[str]]] = [
        (whole | {"memory_bandwidth_bytes_per_s": 4e12}, []),
        ({"memory_bandwidth_bytes_per_s": 4e12}, ["hardware=a100_sxm_80gb"]),
    ]
    small = ["plan.model.layers=1", "plan.parallelism.data=1", "plan.schedule.global_batch=8"]
    a, b = (gnnperf.predict(plan="gpt2_345m", hardware=h, mode="analytic", words=[*w, *small]) for h, w in given)
    assert a.step_time_us == b.step_time_us
    assert a.step.hardware == b.step.hardware == whole["name"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"trace": "no/such.json"}, r"no/such.json: no such file or directory"),
        ({"trace": "x", "mod": "gnn"}, r"unknown key 'mod'.*did you mean 'mode'"),
        ({"plan": "gpt2_345m", "hardware": {"num_sms": 40}}, r"hardware: name, kind.* are required"),
        ({"plan": "gpt2_345m", "hardware": {"sms": 40}, "words": ["hardware=v100_sxm2_16gb"]}, r"unknown key 'sms'"),
    ],
)
def test_bad_input_is_one_error(keys: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gnnperf.predict(**keys)


def test_a_card_states_warnings_first_and_escapes_names(toy: Estimate) -> None:
    strange = replace(toy.step, warnings=("<script>1</script>",), uncovered_ops={"<b>x</b>": 2})
    card = Estimate(strange)._repr_html_()
    assert card.index("&lt;script&gt;") < card.index("step makespan: at least")
    assert "not covered: &lt;b&gt;x&lt;/b&gt; (2)" in card
    assert "<script" not in card
    assert "aten::mm" in card
    assert repr(Estimate(strange)).startswith("<step makespan: at least ")


def test_a_card_draws_the_critical_path_by_node_type(toy: Estimate) -> None:
    one = replace(toy.step, critical_path_share={"compute": 0.75, "host": 0.25})
    card = Estimate(one)._repr_html_()
    assert 'width:75.00%;background:#0072b2" title="compute 75.0 % of the critical path"' in card
    assert 'width:25.00%;background:#a8578a" title="host 25.0 % of the critical path"' in card


def test_nodes_are_a_table(toy: Estimate) -> None:
    table = toy.to_dataframe()
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns) == [column.name for column in PREDICTION_COLUMNS]
    assert table["latency_us"].isna().sum() == 1
    assert toy.uncovered_ops == {"aten::mm": 1}
