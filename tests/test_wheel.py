"""The wheel works without a checkout: from another folder it holds conf/, the stubs and the command."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MARK = "----"
COMMANDS = f"""
import sys
from gnnperf.cli import main
for words in sys.argv[1:]:
    assert main(words.split()) == 0
    print({MARK!r}, flush=True)
"""


FIRST = re.findall(r"^    ((?:pip|gnnperf) .*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)[:3]
OFFLINE = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with what README's first command installs, of this checkout and without its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    words = [str(ROOT) if word == "git+REPOSITORY" else word for word in shlex.split(FIRST[0])]
    assert str(ROOT) in words
    subprocess.run([sys.executable, "-m", *words, *OFFLINE, "--target", str(folder)], cwd=folder, check=True)
    return folder


def run(installed: Path, cwd: Path, *command: str) -> str:
    """Standard output of a Python command in `cwd`, with the wheel's files first on the path."""
    # The wheel's copy of the schedule is not compiled: that takes 15 s, and these graphs are small.
    environment = {**os.environ, "PYTHONPATH": str(installed), "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_of_conf_and_no_research_is_inside(installed: Path) -> None:
    shipped = {p.relative_to(ROOT / "conf") for p in (ROOT / "conf").rglob("*.yaml")}
    assert {p.relative_to(installed / "gnnperf/conf") for p in (installed / "gnnperf/conf").rglob("*.yaml")} == shipped
    assert {p.name for p in installed.iterdir()} == {"gnnperf", "bin", *(p.name for p in installed.glob("*.dist-info"))}
    assert (installed / "gnnperf/report/__init__.pyi").is_file() and (installed / "gnnperf/py.typed").is_file()


def test_a_device_loads_from_any_folder_even_if_that_holds_a_clone(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "gnnperf/docs").mkdir(parents=True)  # the parent of a clone: a folder without __init__.py
    program = "import gnnperf, gnnperf.hardware as h; print(gnnperf.__file__, h.load_device('h100_sxm').num_sms)"
    file, num_sms = run(installed, tmp_path, "-c", program).split()
    assert Path(file).is_relative_to(installed) and num_sms == "132"


@pytest.mark.ci
def test_readme_s_first_commands_lead_to_a_what_if_of_a_trace(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "datasets/cpu-gloo/gpt_l2_w64_s64_b4_x2_lo/1", tmp_path / "TRACE")
    for command, shown in zip(FIRST[1:], ("measured period: 7.376 ms", "what if: "), strict=True):
        program, *words = shlex.split(command)
        assert shown in run(installed, tmp_path, str(installed / "bin" / program), *words)


@pytest.mark.ci
def test_training_and_prediction_work_from_any_folder(installed: Path, tmp_path: Path) -> None:
    for name in ("gpt_l1_w192_s64_b8_x2_lo", "bert_l1_w256_s128_b8_x2_lo"):
        shutil.copytree(ROOT / "datasets/cpu-gloo" / name / "1", tmp_path / "mine" / name / "1")
    keys = [f"data.cache_dir={tmp_path / 'cache'}", "trainer.max_epochs=1", "model.hidden_channels=8",
            "model.num_layers=1"]  # fmt: skip
    trace = str(tmp_path / "mine/gpt_l1_w192_s64_b8_x2_lo/1")
    train = f"train mine --json {' '.join(f'--set {key}' for key in keys)}"
    predict = f"predict {trace} --set evidence=none --set findings=false --set memory=false --json"
    printed = run(installed, tmp_path, "-c", COMMANDS, train, predict)
    document, prediction = map(json.loads, printed.split(MARK)[:2])  # both in one process: torch is loaded once
    assert document["num_runs"] == {"train": 1, "val": 1}
    assert (tmp_path / document["checkpoint"]).is_file()
    assert prediction["step_time_us"] > 0
