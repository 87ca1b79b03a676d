"""`gnnperf predict`: plain flags give the prediction that the keys of predict.py give."""

import re
from pathlib import Path

import pytest

from gnnperf.predict.whatif import EDITS, parse_edit
from gnnperf.report.predict_cli import EXAMPLES, WHAT_IF_EXAMPLES
from tests.command import Command

RUN = "datasets/cpu-gloo/bert_l1_w256_s128_b8_x2_lo/1"


def test_a_trace_with_what_ifs_gives_the_edited_step(command: Command, tmp_path: Path) -> None:
    edits = ["--what-if", "batch=2x", "--what-if", "latency=op:aten::mm,factor:0.5"]
    document = command.document("predict", RUN, *edits, "--out", tmp_path / "out", "--set", "memory=false")
    whatif = document["whatif"]
    assert whatif["edits"] == ["batch=factor:2", "latency=op:aten::mm,factor:0.5"]
    assert (tmp_path / "out/report.html").is_file()
    words = [edit for edit in edits if edit != "--what-if"]
    short = command.document("what-if", RUN, *words, "--out", tmp_path / "b", "--set", "memory=false")
    assert short["whatif"] == whatif


def test_another_device_and_keys_of_predict_py(command: Command, tmp_path: Path) -> None:
    keys = ["--set", "memory=false", "--set", "findings=false", "--set", "hardware.num_sms=4"]
    document = command.document("predict", RUN, "--gpu", "epyc_9654", "--out", tmp_path / "out", *keys)
    assert document["hardware"] == "epyc_9654" and document["findings"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.json"], "nowhere.json"),
        ([RUN, "--gpu", "h1000"], "did you mean"),
        (["resnet50"], "--plan resnet50"),
        ([RUN, "--what-if", "batsh=2x"], "did you mean 'batch'"),
        ([RUN, "--what-if", "batch=large"], "a number"),
        ([], "trace"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    words: list[str], message: str, command: Command, tmp_path: Path
) -> None:
    assert message in command.refused("predict", *words, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("fuse", {"fuse": {}}),
        ("batch=2x", {"batch": {"factor": 2}}),
        ("batch=0.5", {"batch": {"factor": 0.5}}),
        ("link=pcie_gen4_x16", {"link": {"to": "pcie_gen4_x16"}}),
        ("dtype=bfloat16", {"dtype": {"to": "bfloat16"}}),
        ("dtype=of:float16,to:float32", {"dtype": {"of": "float16", "to": "float32"}}),
        ("latency=op:aten::mm,factor:0.5", {"latency": {"op": "aten::mm", "factor": 0.5}}),
    ],
)
def test_an_edit_without_braces(text: str, entry: object) -> None:
    assert parse_edit(text) == entry


@pytest.mark.slow
@pytest.mark.parametrize("line", re.findall(r"^gnnperf (.+?)(?:   .*)?$", EXAMPLES + WHAT_IF_EXAMPLES, re.MULTILINE))
def test_examples_of_the_help_run(line: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnperf.report.write.write_report", lambda _, out: (out,))  # other tests read them
    words = [RUN if word in ("trace.json.gz", "runs/trace_dir") else word for word in line.split()]
    less = ("--set", "findings=false", "--set", "memory=false", "--out", tmp_path / "out")
    assert "step" in command.shown(*words, *less)


def test_help_lists_every_edit() -> None:
    listed = WHAT_IF_EXAMPLES.partition("SETTING:VALUE,...\n")[2].partition("every setting")[0]
    named = [word for line in listed.splitlines() for word in re.findall(r"(\w+)(?:=\S+|, |  )", line[:40])]
    assert sorted(named) == sorted(EDITS)


def test_flags_of_a_run_give_its_hours_and_cost(command: Command, tmp_path: Path) -> None:
    flags = ["--plan", "gpt2_345m", "--gpu", "a100_sxm_80gb", "--tokens", "65536e3", "--usd-per-gpu-hour", "2"]
    rates = command.document("predict", *flags, "--out", tmp_path / "out", "--set", "findings=false")["throughput"]
    assert rates["run"]["steps"] == 1000  # 64 samples of 1,024 tokens each
    assert rates["run"]["cost_usd"] == pytest.approx(2 * rates["run"]["gpu_hours"])
