"""Commands on pages are commands: options and keys exist, values are of their type; each is run, or a reason is given.

docs.made.run_commands runs them, after the tests: a renamed option is detected here already.
"""

import re
import runpy
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override

from docs.made.calls import called
from docs.made.command_classes import Shown, Where, class_of, every_command
from docs.made.pages import ROOT, written_pages
from docs.made.reader_files import provide, replaced
from docs.made.run_commands import not_printed
from docs.made.shell import commands_of, commands_with_output
from gnnperf.cli import parser_of
from gnnperf.core.errors import InputError
from gnnperf.predict import EntryConfig, Request, composed
from gnnperf.predict.composition.command_line import with_keys

PAGES = [page for page in written_pages() if page != "CHANGELOG.md"]
# A name that is there, in place of a file of the reader's own, or of NAME.
SHIPPED = {"hardware": "h100_sxm", "cluster": "hgx8", "plan": "dlrm_criteo", "collectives": "specification"}
SWITCHES = ("--multirun", "-m", "--cfg", "job")
FLAGS = runpy.run_path(str(ROOT / "predict.py"))["FLAGS"]


def _every(program: str) -> list[list[str]]:
    """Different commands of a program on all pages; what stands before it in the line (torchrun) is left out."""
    result: dict[tuple[str, ...], None] = {}
    for page in PAGES:
        for words in commands_of((ROOT / page).read_text(encoding="utf-8")):
            if program in words:
                given = words[words.index(program) + 1 :]
                result[tuple(given[: given.index(">")] if ">" in given else given)] = None  # > FILE is the shell's
    return [list(words) for words in result]


def _overrides(words: Sequence[str]) -> list[str]:
    """As one job of a sweep gets them, with shipped files in place of the reader's."""
    given = [word for word in words if word not in SWITCHES]
    return [
        _first(override) for override in OverridesParser.create().parse_overrides([_shipped(word) for word in given])
    ]


def _shipped(word: str) -> str:
    key, _, value = word.partition("=")
    return f"{key}={SHIPPED[key]}" if key in SHIPPED and (value.endswith(".yaml") or value.isupper()) else word


def _first(override: Override) -> str:
    if not override.is_sweep_override():
        return str(override.input_line)
    sweep: Any = override.value()
    value = sweep.start if isinstance(sweep, IntervalSweep) else next(iter(override.sweep_string_iterator()))
    return f"{override.get_key_element()}={value}"


@pytest.mark.parametrize("words", [pytest.param(w, id=" ".join(w)) for w in _every("gnnperf")])
def test_options_of_gnnperf_exist(words: list[str]) -> None:
    assert callable(parser_of(words).parse_args(words).run)


@pytest.mark.parametrize("words", [pytest.param(w, id=" ".join(w)) for w in _every("predict.py")])
def test_keys_of_predict_exist(words: list[str]) -> None:
    request = composed("predict", Request, *_overrides(with_keys(words, FLAGS, Request)))
    request.cluster_spec(), request.plan_spec()
    assert len(request.edits()) == len(request.whatif)


@pytest.mark.parametrize("words", [pytest.param(w, id=" ".join(w)) for w in _every("train.py")])
def test_keys_of_train_exist(words: list[str]) -> None:
    if "hydra/sweeper=optuna" in words or any(word == "experiment=sweep" for word in words):
        pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="the extra 'sweep' is not installed")
    assert composed("train", EntryConfig, *_overrides(words)).out


@pytest.mark.parametrize("words", [["predict.py", "trase=a"], ["predict.py", "whatif=[{bach:{factor:2}}]"]])
def test_a_key_that_does_not_exist_is_detected(words: list[str]) -> None:
    with pytest.raises(InputError, match=r"trase|bach"):
        composed("predict", Request, *_overrides(words[1:])).edits()


def test_targets_of_make_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    requested = {word for words in _every("make") for word in words if re.fullmatch("[a-z]+", word)}
    assert {"demo", "test"} <= requested <= set(targets)


def test_benchmarks_that_pages_name_exist() -> None:
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in PAGES]
    named = {name for text in texts for name in re.findall(r"python -m research.benchmarks[. ](\w+)", text)}
    assert "replay" in named
    folder = ROOT / "research" / "benchmarks"
    files = [(name, (folder / f"{name}.py", folder / name / "__main__.py")) for name in named]
    assert [name for name, paths in files if not any(path.is_file() for path in paths)] == []


def test_forms_and_remarks_of_the_readme_are_understood() -> None:
    text = "    gnnperf shard A --devices 8 [--top 3] [--json]    what it does\n    python train.py seed=0,1   many\n"
    assert list(commands_of(text)) == [
        ["gnnperf", "shard", "A", "--devices", "8", "--top", "3", "--json"], ["python", "train.py", "seed=0,1"],
    ]  # fmt: skip
    assert list(commands_of("    python predict.py [mode=a|b] 'whatif=[{batch:{factor:2}}]' data.op_tables=[]\n")) == [
        ["python", "predict.py", "mode=a", "whatif=[{batch:{factor:2}}]", "data.op_tables=[]"]
    ]
    assert list(commands_of("```sh\ngnnperf a \\\n  --b c # why\n```\n")) == [["gnnperf", "a", "--b", "c"]]


def test_every_command_runs_or_has_a_reason_not_to() -> None:
    classes = {str(command): class_of(command) for command in every_command()}
    assert [line for line, (where, _) in classes.items() if where is Where.unknown] == []
    places = Counter(where for where, _ in classes.values())
    benchmarks = sum(line.startswith("python -m research.benchmarks") for line in classes)
    assert places[Where.here] > 150 and places[Where.nowhere] - benchmarks < 20
    assert class_of(Shown("a.md", ("make", "bench")))[0] is Where.unknown
    tested = {
        name for where, why in classes.values() if where is Where.in_tests for name in re.findall(r"test_\w+\.py", why)
    }
    assert len(tested) >= 4 and all((ROOT / "tests/docs" / name).is_file() for name in tested)


def test_what_a_page_leaves_open_is_filled_in(tmp_path: Path) -> None:
    words = replaced(["gnnperf", "predict", "TRACE", "--gpu", "NAME", "--checkpoint", "FILE"])
    assert words[2:] == ["traces", "--gpu", "h100_sxm", "--checkpoint", "runs/model/checkpoint.pt"]
    provide(words[:5], tmp_path, tmp_path, "")
    assert (tmp_path / "traces" / "rank_1.kineto.json.gz").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["traces"]


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        (["gnnperf", "devices", ">", "devices.txt"], 0, "h100_sxm"),
        (["python", "train.py", "trase=a"], 2, "trase"),
        (["python", "-m", "no.such.module"], 1, "Traceback"),
    ],
)
def test_a_command_ends_with_its_exit_code(words: list[str], code: int, printed: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").symlink_to(ROOT / "train.py")
    result, out, err = called(words, tmp_path)
    assert result == code and printed in out + err
    assert (tmp_path / "devices.txt").is_file() == (">" in words)


def test_output_is_that_of_the_block_before_it_figures_of_stand_ins_aside() -> None:
    text = "```sh\ngnnperf devices\ngnnperf predict traces\n```\n```text\nstep: 1 ms\n```\n```sh\nmake docs\n```\n"
    first, second, other = (Shown("page", tuple(words), output) for words, output in commands_with_output(text))
    assert (first.output, second.output, other.output) == ((), ("step: 1 ms",), None)
    assert not_printed(second, "step:  -2.5 us") == ""  # of other traces than the page's
    assert not_printed(second, "at least 1 ms") == "  FAILED: does not print: step: 0\n"
    as_shown = replace(first, output=second.output)
    assert not_printed(as_shown, "step: 1 ms") == ""
    assert not_printed(as_shown, "step: 2 ms") == "  FAILED: does not print: step: 1 ms\n"
