"""Flags become keys, and Hydra reads them back as they were meant; what is made without Hydra is what it composes."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnnperf.core.errors import InputError
from gnnperf.predict import EntryConfig, Request, composed
from gnnperf.predict.composition.command_line import OwnFiles, with_keys
from gnnperf.predict.composition.plain import plain_config
from gnnperf.predict.composition.with_hydra import composed_by_hydra

FLAGS = ("json", "quiet", "max_step_ms", "against")


def keys(*words: str) -> list[str]:
    return with_keys(words, FLAGS, Request)


def test_flags_are_keys_wherever_they_stand() -> None:
    assert keys("trace=x", "--json", "--max-step-ms", "12", "mode=gnn", "--against=out/a") == [
        "trace=x", "mode=gnn", "json=true", "max_step_ms=12", "against=out/a",
    ]  # fmt: skip


def test_what_is_hydras_stays_hydras_with_all_overrides_in_a_row() -> None:
    """Its parser takes overrides in one place only."""
    assert keys("--cfg", "job", "--multirun", "--jsonl", "-m") == ["--cfg", "job", "--multirun", "--jsonl", "-m"]
    assert keys("trace=x", "--cfg", "job", "--json") == ["trace=x", "json=true", "--cfg", "job"]
    assert keys("--json", "--cfg", "job", "trace=x") == ["trace=x", "json=true", "--cfg", "job"]
    assert keys("--cfg", "job", "--quiet") == ["quiet=true", "--cfg", "job"]


@pytest.mark.parametrize("path", ["a=b/c, d", "it's", "back\\", "a\\'b", "{x}", "ein Ordner/ä", "(1)", "null", "~/x"])
def test_any_path_comes_through(path: str) -> None:
    config = composed("predict", Request, *keys("--against", path), "trace=x")
    assert config.against == (None if path == "null" else path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-step-ms"], "--max-step-ms: expected one argument"),
        (["--against", "--json"], "--against: expected one argument"),
        (["--json=yes"], "--json: ignored explicit argument 'yes'"),
    ],
)
def test_a_flag_that_cannot_be_read_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        keys(*words)


def test_values_are_those_of_the_key() -> None:
    with pytest.raises(InputError, match="max_step_ms: bad value 'soon'"):
        composed("predict", Request, *keys("--max-step-ms", "soon"))
    assert composed("predict", Request, *keys("--max-step-ms", "1e1", "--quiet")).max_step_ms == 10.0


ROOT = Path(__file__).resolve().parents[3]
DEVICE = (ROOT / "conf" / "hardware" / "t4.yaml").read_text().replace("name: t4", "name: mine")
MEASURED = (
    "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
    "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
    "print(done.returncode, used.ru_maxrss, used.ru_utime + used.ru_stime)"
)
CALLBACK = (
    "_target_: pandas.read_pickle\nfilepath_or_buffer: {_target_: io.BytesIO, initial_bytes: !!binary gASVIAA=}\n"
)


def test_two_files_cannot_run_code_through_hydras_callbacks(tmp_path: Path) -> None:
    """The whole command, with the limits of time and memory that a refusal has."""
    first, second, ran = tmp_path / "a.yaml", tmp_path / "b.yaml", tmp_path / "ran"
    first.write_text(f"defaults:\n  - /cluster@_global_.hydra.callbacks: own_b\n  - _self_\n{DEVICE}")
    second.write_text(f"mine:\n  _target_: pathlib.Path.touch\n  self: {{_target_: pathlib.Path, _args_: [{ran}]}}\n")
    command = [sys.executable, str(ROOT / "predict.py"), "trace=x", f"hardware={first}", f"cluster={second}"]
    measured = [sys.executable, "-c", MEASURED, *command]  # a small parent: a peak begins at the parent's size
    done = subprocess.run(measured, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    code, peak_kb, cpu_s = (float(number) for number in done.stdout.split())
    assert code == 2 and not ran.exists()
    assert done.stderr.startswith(f"error: {first}: has the key 'defaults'") and done.stderr.count("\n") == 1
    assert cpu_s < 2.0
    assert peak_kb < 300_000


INTERPOLATED = ("name: x_${oc.env:MY_SECRET}\n", "name: x_${trace}\n", "name: ${hydra:runtime.cwd}\n")


@pytest.mark.parametrize("text", [CALLBACK, *INTERPOLATED])
@pytest.mark.parametrize("group", ["hardware", "cluster", "plan"])
def test_a_file_with_code_or_interpolations_is_refused(
    group: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "hunter2")
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match="has the ") as refused:
        composed("predict", Request, "trace=/nowhere", f"{group}={path}")
    assert "hunter2" not in str(refused.value) and "/nowhere" not in str(refused.value)


def test_settings_go_over_a_file_at_any_depth(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(DEVICE)
    config = composed(
        "predict", Request, f"hardware={path}", "hardware.flops_per_s.float32=1e12", "hardware.power_limit_w=70"
    )
    assert config.hardware["flops_per_s"]["float32"] == 1e12 and config.hardware["flops_per_s"]["float16"] > 1e12
    assert config.hardware["name"] == "mine" and config.hardware["power_limit_w"] == 70
    device = config.device_spec()
    assert device is not None and device.power_limit_w == 70


def test_an_unknown_setting_of_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(DEVICE)
    config = composed("predict", Request, f"hardware={path}", "hardware.colour=green")
    with pytest.raises(InputError, match="unknown key 'colour'"):
        config.device_spec()


@pytest.mark.parametrize("word", ["hardware=../../../tmp/evil", "+experiment=../../evil", "experiment=a/b", "plan=x/y"])
def test_a_choice_that_is_no_name_is_refused(word: str) -> None:
    with pytest.raises(InputError, match="names of conf"):
        composed("predict", Request, word)


def test_a_placeholder_without_its_file_is_refused() -> None:
    with pytest.raises(InputError, match="own_file"):
        OwnFiles().inserted({"own_file": 3})


@pytest.mark.parametrize("name", ["a b.yaml", "a,b.yaml", "ä\nb.yaml", "{a}'b.yaml", "a$b.yaml", "${trace}.yaml"])
def test_a_file_is_read_whatever_its_name_is(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(DEVICE)
    assert composed("predict", Request, f"hardware={path}").hardware["name"] == "mine"


@pytest.mark.parametrize(
    "path",
    ["/a b", "/ä", "/a{b}", "/a'b", '/a"b', "/${oc.env:HOME}", "/a\\${trace}", "/a#b", "/a=b", "~/x", "/a(b)", "/[a"],
)
def test_a_path_on_the_command_line_is_text(path: str) -> None:
    assert composed("predict", Request, f"trace={path}", f"out={path}").trace == path
    assert composed("train", EntryConfig, f"data.path={path}").data.path == path
    assert composed("predict", Request, trace=path).trace == path


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ((), {}),
        (("trace=/tmp/some-run/1.json.gz", "out=../out_1"), {}),
        (("plan=gpt_405b", "hardware=h100_sxm", "cluster=hgx_h100"), {}),
        (("collectives=specification",), {"trace": "a ${b}, 'c'", "quiet": True}),
    ],
)
def test_names_and_paths_give_what_hydra_composes(words: tuple[str, ...], values: dict[str, Any]) -> None:
    plain, composed = (
        plain_config("predict", Request, words, **values),
        composed_by_hydra("predict", Request, words, values),
    )
    assert plain is not None
    assert plain.device_spec() == composed.device_spec()
    assert plain.cluster_spec() == composed.cluster_spec()
    unspecified: dict[str, Any] = {"hardware": {}, "cluster": {}}  # compared above: numbers may be texts
    assert replace(plain, **unspecified) == replace(composed, **unspecified)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("out=null",), {}),
        (("out=5",), {}),
        (("out=a,b",), {}),
        (("out=a", "out=b"), {}),
        (("trace=x", "--json"), {}),
        (("mode=gnn",), {}),
        (("hardware=mine.yaml",), {}),
        (("hardware=unknown",), {}),
        (("plan.parallelism.tensor=4",), {}),
        (("whatif=fuse",), {}),
        (("run.tokens=1e9",), {}),
        ((), {"step": 1}),
        ((), {"run.tokens": 1e9}),
    ],
)
def test_other_words_are_left_to_hydra(words: tuple[str, ...], values: dict[str, Any]) -> None:
    assert plain_config("predict", Request, words, **values) is None


def test_an_entry_point_with_a_folder_of_its_own_is_left_to_hydra() -> None:
    assert plain_config("train", Request, ("out=x",)) is None
