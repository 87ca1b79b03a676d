"""Every command of `gnnperf`: help with examples that parse, and `--json` that prints JSON and nothing else."""

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gnnperf import cli
from gnnperf.report import write_report
from tests.command import Command
from tests.predict.predictions import GEMM_1, toy_prediction

RUN = "datasets/cpu-gloo/bert_l1_w256_s128_b8_x2_lo/1"
QUICK = ("--set", "memory=false", "--set", "findings=false")
OP = {"op": "aten::addmm", "shapes": [[64], [32, 128], [128, 64]], "dtype": "float32"}
# Command -> its words without --json, {out}: of a prediction, {new}: to be written; what the document holds.
CALLS: dict[str, tuple[str, str]] = {
    "report": ("{out}", "step_time_us"),
    "inspect": (RUN, "ranks"),
    "import": (f"{RUN} --out {{new}}", "nodes"),
    "data list": ("--kind op-table", "0"),
    "data fetch": ("--kind op-table --to {new}", "0"),
    "record": ("--out {new} -- {python} -c 'print(1234)'", "exit_code"),
    "calibrate": ("--out {new} --device cpu", "values"),
    "ops predict": ("{ops} --hardware h100_sxm", "rows"),
    "coverage": (RUN, "sources"),
    "devices": ("", "0"),
    "compare": ("{out} {out}", "change_us"),
    "roofline": ("{out}", "points"),
}
TESTED_IN = {  # what takes seconds has one test only
    "data build": "tests/gnn/data/test_build.py",
    "predict": "tests/report/test_predict_command.py",
    "what-if": "tests/report/test_predict_command.py",
    "shard": "tests/shard/test_command.py",
    "search": "tests/report/search/test_command.py",
    "interventions": "tests/research/evaluation/test_cli.py",
    "noise-floor": "tests/research/evaluation/test_cli.py",
    "train": "tests/predict/test_train_command.py",
    "capture": "tests/generate/test_capture_command.py",
    "improvement": "tests/research/evaluation/test_improvement.py",
}
WITHOUT_RESULT = {"completion"}  # prints a script


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from list(_leaves(command)) or [command]


COMMANDS = {command.prog.removeprefix("gnnperf "): command for command in _leaves(cli.parser_of([]))}


def test_the_table_has_every_command() -> None:
    assert set(COMMANDS) == {*CALLS, *TESTED_IN, *WITHOUT_RESULT}
    assert all(re.search(r'"--json"|\.document\(', Path(path).read_text()) for path in TESTED_IN.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_that_parse(name: str) -> None:
    text = COMMANDS[name].format_help()
    lines = re.findall(r"^  gnnperf (.+?)(?:   .*)?$", text.partition("\nexamples:\n")[2], re.MULTILINE)
    assert any(line.startswith(name) for line in lines)
    for line in lines:
        words = shlex.split(line.partition(" > ")[0])
        assert callable(cli.parser_of(words).parse_args(words).run)
    assert ("--json" in text) == (name not in WITHOUT_RESULT)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files that commands read."""
    folder = tmp_path_factory.mktemp("commands")
    write_report(toy_prediction({GEMM_1: 305.0}), folder / "out")
    (folder / "ops.jsonl").write_text(json.dumps(OP))
    return {"out": str(folder / "out"), "ops": str(folder / "ops.jsonl"), "python": sys.executable}


def _calibrated(*_: object) -> list[Any]:
    interval = SimpleNamespace(low=9.0, value=10.0, high=11.0)
    return [SimpleNamespace(latency_us=interval, round_medians_us=[10.0] * 5)]


@pytest.mark.parametrize("name", CALLS)
def test_json_is_all_that_is_printed(
    name: str, inputs: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("gnnperf.trace.data_cli.fetch", lambda *_: None)
    monkeypatch.setattr("gnnperf.record.calibrate.run.calibrate", _calibrated)
    words, key = CALLS[name]
    given = shlex.split(words.format(new=tmp_path / "new", **inputs))
    place = given.index("--") if "--" in given else len(given)
    code = cli.main([*name.split(), *given[:place], "--json", *given[place:]])
    printed = capfd.readouterr()
    assert code == (2 if name == "record" else 0), printed.err  # a command that marks no step
    document = json.loads(printed.out)
    assert (len(document) > int(key)) if isinstance(document, list) else key in document
    assert name != "record" or printed.err.startswith("1234\n")


@pytest.mark.parametrize(("is_opened", "error"), [(True, ""), (False, "no browser opens file:///")])
def test_report_opens_a_browser_on_request_only(
    is_opened: bool, error: str, inputs: dict[str, str], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def open_page(address: str) -> bool:
        opened.append(address)
        return is_opened

    monkeypatch.setattr("webbrowser.open", open_page)
    address = (Path(inputs["out"]) / "report.html").as_uri()
    assert command.shown("report", inputs["out"]) == f"report: {address}\n" and opened == []
    shown, message = command.ended(0, "report", inputs["out"], "--open", "--quiet")
    assert (opened, shown, error in message) == ([address], "", True)


def test_report_of_a_trace_takes_the_options_of_predict(tmp_path: Path, command: Command) -> None:
    out = tmp_path / "out"
    printed = command.shown("report", RUN, "--what-if", "batch=2x", "--out", out, *QUICK)
    assert "what if:" in printed and printed.endswith(f"report: {(out / 'report.html').as_uri()}\n")
    assert "holds a prediction; other options need its trace" in command.refused("report", out, "--gpu", "h200")
    options = [{one for action in COMMANDS[name]._actions for one in action.option_strings} for name in
               ("predict", "report")]  # fmt: skip
    assert options[1] - options[0] == {"--open"} and options[0] <= options[1]
