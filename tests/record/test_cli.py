from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from gnnperf.record.cli import PLAN_NAMES, WORKLOADS, add_parsers
from gnnperf.record.cpu_gloo import PLANS


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_parsers(parser.add_subparsers())
    return parser.parse_args(arguments)


def test_forms_and_their_settings() -> None:
    demo = parse("record", "demo", "--out", "runs/one", "--workload", "cnn")
    assert (str(demo.out), demo.workload) == ("runs/one", "cnn") and callable(demo.run)
    dataset = parse("record", "dataset", "--raw", "raw", "--out", "out")
    assert (dataset.plan, str(dataset.raw), str(dataset.out)) == ("cpu-gloo", "raw", "out")


def test_the_names_that_are_offered_are_those_there_are() -> None:
    assert set(PLAN_NAMES) == set(PLANS)
    assert set(WORKLOADS) == {workload.kind for workload in PLANS["cpu-gloo"]().workloads}


def test_an_unknown_workload_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse("record", "demo", "--out", "x", "--workload", "rnn")
    assert stop.value.code == 2 and "'rnn'" in capsys.readouterr().err


def test_the_parser_does_not_load_torch() -> None:
    code = "import sys, gnnperf.record.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_recorder_needs_torch_and_the_standard_library_only() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['pandas', 'pyarrow', 'msgspec', 'lightning', 'hydra']));"
        "from gnnperf.record import record; import gnnperf.record.run, gnnperf.record.workloads.dlrm"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
