"""What the project promises about itself."""

import ast
import gzip
import importlib
import os
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from research.vocabulary import count, identifiers, private_words

ROOT = Path(__file__).resolve().parents[1]
WITHOUT_TORCH = (
    "cli", "trace.public", "analytic", "schedule", "graph", "trace", "hardware", "gnn.evaluation", "predict",
)  # fmt: skip
MAX_LINES = 450


def _loaded_by(*modules: str, exports_of: Sequence[str] = ()) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after importing `modules` and what some of them export."""
    exports = "[getattr(m, name) for m in map(sys.modules.get, sys.argv[1:]) for name in getattr(m, '__all__', ())]"
    code = f"import sys, {', '.join(modules)}; {exports}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    command = [sys.executable, "-c", code, *exports_of]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


def test_looking_at_traces_does_not_load_torch() -> None:
    """Every name that these packages export; of `predict`, which loads the network on demand, the package itself."""
    modules = [f"gnnperf.{package}" for package in WITHOUT_TORCH]
    loaded = _loaded_by(*modules, exports_of=[m for m in modules if m != "gnnperf.predict"])
    assert "pandas" in loaded
    assert not loaded & {"torch", "lightning", "torch_geometric", "wandb", "hydra"}


def test_listing_data_loads_no_tables_and_reading_or_recording_no_torch() -> None:
    assert not _loaded_by("gnnperf.cli", "gnnperf.trace.data_cli") & {"torch", "pandas", "numba"}
    assert not _loaded_by("gnnperf.trace", "gnnperf.record.record_cli", "gnnperf.record.wrap") & {"torch", "numba"}


def test_make_installs_the_torch_that_is_pinned() -> None:
    pinned = [d for d in _project()["dependencies"] if d.startswith("torch==")]
    assert len(pinned) == 1
    assert f"TORCH       := {pinned[0]}\n" in (ROOT / "Makefile").read_text()


def test_the_data_folder_shadows_no_library() -> None:
    assert not list((ROOT / "datasets").rglob("*.py"))


def test_ci_can_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize(
    "package", sorted(p.name for p in (ROOT / "gnnperf").iterdir() if (p / "__init__.py").is_file())
)
def test_the_architecture_names_every_package(package: str) -> None:
    assert f"| `{package}`" in (ROOT / "ARCHITECTURE.md").read_text()


def test_imports_across_packages_go_through_exports() -> None:
    """`from gnnperf.graph import build_graph`, never `from gnnperf.graph.build import build_graph`."""
    deep = []
    for path in [*(ROOT / "gnnperf").rglob("*.py"), ROOT / "train.py", ROOT / "predict.py"]:
        parts = path.relative_to(ROOT).with_suffix("").parts
        own = parts[1] if len(parts) > 2 else ""
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gnnperf."):
                _, package, *inside = node.module.split(".")
                if inside and package != own:
                    deep.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.module}")
    assert deep == []


@pytest.mark.parametrize(
    "stub", sorted((ROOT / "gnnperf").glob("*/__init__.pyi"), key=str), ids=lambda p: p.parent.name
)
def test_every_export_exists_and_is_no_module_of_another_name(stub: Path) -> None:
    package = importlib.import_module(f"gnnperf.{stub.parent.name}")
    for name in package.__all__:
        result = getattr(package, name)
        assert not (isinstance(result, ModuleType) and result.__name__.rpartition(".")[2] != name)


def test_modules_hold_one_concept_each() -> None:
    lines = {p.relative_to(ROOT): p.read_text().count("\n") for p in (ROOT / "gnnperf").rglob("*.py")}
    assert {str(p): n for p, n in lines.items() if n > MAX_LINES} == {}
    names = Counter(path.stem for path in lines)
    parts = {"__init__", "model", "calls", "constants", "plan", "build"}  # of families of ops and kinds of plans
    assert {name for name in names if names[name] > 2} <= parts


def _project() -> dict[str, list[str]]:
    project: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


NOW = gzip.compress(b"a", mtime=time.time_ns() % 2**32)  # other bytes in every process


@pytest.mark.parametrize(("content", "size"), [(NOW, 1), (b"plain", 5)])
def test_bytes_do_not_name_a_test(request: pytest.FixtureRequest, content: bytes, size: int) -> None:
    assert len(gzip.decompress(content) if content is NOW else content) == size
    assert request.node.callspec.id in ("content-1", "content-5")


# Identifiers use the words of the field.


def test_every_identifier_of_a_module_is_listed_once_per_occurrence(tmp_path: Path) -> None:
    path = tmp_path / "told_us.py"
    path.write_text("from a.said import b\n\ndef f(asked: int) -> int:\n    return g(found=asked.cells)\n")
    assert list(identifiers(path)).count("asked") == 2
    assert {"told_us", "b", "f", "g", "found", "cells"} <= set(identifiers(path))


def test_words_are_parts_of_an_identifier_and_terms_of_libraries_do_not_count() -> None:
    assert private_words("AloneAnswer") == {"alone"}
    assert private_words("told_us") == {"told"}
    assert private_words("FileNotFoundError") == private_words("toldest") == set()


def test_fewer_than_a_hundred_identifiers_of_the_former_vocabulary_are_left() -> None:
    assert sum(names.total() for names in count().values()) < 100
