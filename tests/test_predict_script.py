"""predict.py as a user runs it: a small trace in, four files out; bad input is one message and exit code 2."""

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from gnnperf.report import write as report_write

SCRIPT = Path(__file__).resolve().parent.parent / "predict.py"
PLAIN = ("memory=false", "findings=false", "cache_dir=null")  # for what is requested other things


class Done(NamedTuple):
    """What a call of the script left."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


def _in_a_process(folder: Path, *words: str) -> Done:
    """The script as a shell calls it."""
    command = [sys.executable, "-W", "ignore", str(SCRIPT), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, cwd=folder)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(name="run")
def _run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The same in this process, which has loaded everything already."""
    main = runpy.run_path(str(SCRIPT))["main"]

    def run(folder: Path, *words: str) -> Done:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["predict.py", *words])
        try:
            main()
        except SystemExit as error:
            return Done(int(error.code or 0), *capsys.readouterr())
        return Done(0, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def predicted(small_trace: Path) -> Path:
    """The output of the default mode."""
    done = _in_a_process(small_trace.parent, f"trace={small_trace}", "out=answer")
    assert done.returncode == 0, done.stderr
    for part in ("step period", "measured period: 200 us", "measured latencies", "aten::mm"):
        assert part in done.stdout
    assert sorted(p.name for p in small_trace.parent.iterdir()) == ["answer", "small.json"]  # nothing else is written
    return small_trace.parent / "answer"


def test_document_names_the_run_and_compares_like_with_like(predicted: Path) -> None:
    result = json.loads((predicted / "prediction.json").read_text())
    assert (result["step_time_kind"], result["mode"], result["hardware"]) == ("period", "hybrid", "v100_sxm2_32gb")
    assert result["measured_step_time_us"] == pytest.approx(200.0)
    assert result["step_time_error"] == pytest.approx(result["step_time_us"] / 200.0 - 1.0)
    assert result["num_nodes"]["compute"] == 1
    assert sum(result["source_share"].values()) == pytest.approx(1.0)
    assert sum(result["critical_path_share"].values()) == pytest.approx(1.0)


def test_replay_compares_with_its_own_step(run: Run, small_trace: Path, tmp_path: Path) -> None:
    done = run(tmp_path, f"trace={small_trace}", "mode=replay", "out=replay", "step=3", *PLAIN)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "replay" / "prediction.json").read_text())
    assert (result["step"], result["measured_step_time_us"]) == (3, pytest.approx(200.0))
    assert result["step_time_error"] == pytest.approx(0.0, abs=0.05)
    assert result["source_share"] == pytest.approx({"measured": 0.975, "class_median": 0.025})  # the sync's rest


def test_what_if_on_the_traces_own_hardware(run: Run, small_trace: Path, tmp_path: Path) -> None:
    """Named, the trace's device is still its own; with other numbers it is not, and the mm takes half the time."""
    own, twice = "hardware=v100_sxm2_32gb", "hardware.flops_per_s.float32=31.4e12"
    for name, overrides in (("own", [own]), ("twice", [own, twice])):
        done = run(tmp_path, f"trace={small_trace}", f"out={name}", *overrides, *PLAIN)
        assert done.returncode == 0, done.stderr
    result = {name: json.loads((tmp_path / name / "prediction.json").read_text()) for name in ("own", "twice")}
    assert result["own"]["step_time_error"] is not None
    assert result["twice"]["step_time_error"] is None
    assert result["twice"]["traced_step_time_us"] == pytest.approx(200.0)
    assert result["twice"]["step_time_us"] < result["own"]["step_time_us"]


def test_a_plan_that_no_one_ran(run: Run, tmp_path: Path) -> None:
    small = ["plan.model.layers=2", "plan.parallelism.data=2", "plan.schedule.global_batch=32"]
    done = run(tmp_path, "plan=gpt2_345m", "hardware=a100_sxm_80gb", "mode=analytic", "out=planned", *small)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "planned" / "prediction.json").read_text())
    assert (result["run"], result["world_size"], result["traced_ranks"]) == ("gpt2_345m", 2, [0])
    assert result["step_time_us"] > 0
    assert (result["traced_step_time_us"], result["step_time_error"], result["uncovered_ops"]) == (None, None, {})
    assert "planned: it never ran" in done.stdout
    assert not any("traced" in warning for warning in result["warnings"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["plan=gpt2_345m"], "hardware: a plan needs a device to run on"),
        (["plan=gpt2_345m", "trace={trace}", "hardware=t4"], "a trace is requested as well"),
        (["trace={trace}", "verbose=true", "quiet=true"], "verbose: quiet is requested as well"),
        (["plan=gpt2_345m", "hardware=t4", "mode=replay"], "a plan has none"),
        (["plan=gpt3_345m", "hardware=t4"], "no plan named 'gpt3_345m'; did you mean gpt2_345m"),
        (["plan=resnet18", "hardware=t4", "plan.network.block=wide"], "plan.network.block: bad value 'wide'"),
        (["plan=resnet18", "hardware=t4", "plan.network.blocks=[2,2]"], "network.widths: bad value"),
        (["plan=resnet18", "hardware=t4", "plan.parallelism.tensor=2"], "unknown key 'parallelism'"),
        (["trace=t", "whatif.batch=2"], "give 'whatif=[{batch:{factor:2}}]'"),
        (["trace=t", "whatif.latency.factor=0.5"], "give 'whatif=[{latency:{factor:0.5}}]'"),
        (["plan=gpt2_345m", "hardware=t4", "plan.schedule.chunks=2"], "schedule.chunks: bad value 2"),
        (["plan=gpt2_345m", "hardware=t4", "plan.parallelism.tensor=5"], "5 does not divide model.heads, 16"),
        (["plan=dlrm_criteo", "hardware=t4", "plan.ranks=3"], "3 ranks do not divide the batch, 65536"),
        (["trace=/no/such/trace.json"], "/no/such/trace.json"),
        ([], "trace: a value is required"),
        (["trace={trace}", "mode=gnn"], "mode=gnn needs a checkpoint"),
        (["trace={trace}", "mod=gnn"], "unknown key 'mod'"),
        (["trace={trace}", "mode=gnm"], "bad value 'gnm'. Allowed: hybrid, gnn, analytic, replay"),
        (["trace={trace}", "step=first"], "step: bad value 'first'. Allowed: a whole number or null"),
        (["trace={trace}", "hardware=t4", "hardware.num_sms=none"], "num_sms"),
        (["trace={trace}", "checkpoint={trace}"], "small.json"),
        (["trace={trace}", "out={trace}"], "is not a folder"),
        (["trace={trace}", "--max-step-ms"], "--max-step-ms: expected one argument"),
        (["trace={trace}", "--against", "no/such", "--max-regression", "5"], "no/such: cannot be read"),
        (["trace={trace}", "whatif=[{{bach:{{factor:2}}}}]"], "unknown edit 'bach'"),
        (["trace={trace}", "whatif=[{{latency:{{op:mm,factor:2}}}}]"], "e.g. aten::mm"),
    ],
)
def test_bad_input_is_one_message_exit_2_and_no_file(
    run: Run, small_trace: Path, tmp_path: Path, overrides: list[str], message: str
) -> None:
    done = run(tmp_path, *(o.format(trace=small_trace) for o in overrides))
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_second_prediction_of_a_trace_imports_no_torch(run: Run, small_trace: Path, tmp_path: Path) -> None:
    first = run(tmp_path, f"trace={small_trace}", "out=first", "cache_dir=cache", "quiet=true")
    words = [f"trace={small_trace}", "out=second", "cache_dir=cache", "quiet=true"]
    command = [sys.executable, "-X", "importtime", str(SCRIPT), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, cwd=tmp_path)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert (first.returncode, done.returncode) == (0, 0)
    assert "pandas" in loaded and loaded.isdisjoint({"torch", "torch_geometric", "lightning"})
    results = [json.loads((tmp_path / name / "prediction.json").read_text()) for name in ("first", "second")]
    assert results[0]["peak_memory"] and results[0]["peak_memory"] == results[1]["peak_memory"]


def test_json_isolated_on_standard_output_and_limits_with_exit_code_4(
    run: Run, small_trace: Path, tmp_path: Path
) -> None:
    done = run(tmp_path, f"trace={small_trace}", "out=before", "--json", *PLAIN)
    assert done == (0, (tmp_path / "before/prediction.json").read_text(), "")
    result = json.loads(done.stdout)
    assert (result["step_time_kind"], result["peak_memory"]) == ("period", None)
    limits = ["--quiet", "--max-step-ms", "0.001", "--max-regression=0", "--against", "before"]
    done = run(tmp_path, f"trace={small_trace}", "out=after", *PLAIN, *limits)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("error: the step takes ")
    assert done.stderr.endswith("more than 0.001 ms (--max-step-ms).\n")
    assert (tmp_path / "after" / "prediction.json").exists()
    keys = ["quiet=true", "max_step_ms=1", "max_regression=0", "against=before/prediction.json"]
    assert run(tmp_path, f"trace={small_trace}", "out=after", *PLAIN, *keys) == (0, "", "")


def test_ctrl_c_leaves_an_earlier_prediction_and_states_so(
    run: Run, small_trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path, f"trace={small_trace}", "out=out", *PLAIN, "--quiet").returncode == 0
    before = (tmp_path / "out/prediction.json").read_bytes()

    def interrupted(*estimate: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(report_write, "html_report", interrupted)
    assert run(tmp_path, f"trace={small_trace}", "out=out", *PLAIN, "mode=analytic") == (130, "", "interrupted\n")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out/prediction.json").read_bytes() == before
