"""Fixtures every package shares."""

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from gnnperf.core import use_python_strings
from tests.command import Command

if TYPE_CHECKING:
    from gnnperf.gnn.data.prepare import PreparedData

MIRROR_VARIABLE = "GNNPERF_DATA_MIRROR"

# Two cores are shared by the tests and by the processes some of them start. Set before torch is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

# No deadline: a busy machine is no failure. CI tries the same examples every time; at home new ones are welcome.
settings.register_profile("gnnperf", deadline=None, derandomize=bool(os.environ.get("CI")), max_examples=20)
settings.register_profile("thorough", deadline=None, max_examples=500)  # pytest --hypothesis-profile=thorough
settings.load_profile("gnnperf")
use_python_strings()  # as commands do: tests call them in this process
gc.disable()  # until all tests are collected: importing and collecting leave no garbage


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes by their place, not by their content: what gzip packed here carries the second it was packed in.

    Each worker of pytest-xdist collects for itself, and all must name every test alike.
    """
    return argname if isinstance(val, bytes) else None


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of garbage collections; tables make many objects and few cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the passes of the schedule before workers start: each would compile the same, half a minute of a core."""
    folder = Path(__file__).parents[1] / "gnnperf" / "schedule"
    starts_workers = getattr(session.config.option, "numprocesses", None) and not hasattr(session.config, "workerinput")
    if starts_workers and not any((folder / "__pycache__").glob("contention.*.nbi")):
        from compiled import compile_passes

        compile_passes()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture(scope="module")
def small_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Kineto file of five steps on one V100."""
    from tests.trace.kineto_files import five_steps, write

    return write(tmp_path_factory.mktemp("trace") / "small.json", five_steps())


@pytest.fixture(scope="session")
def data() -> "PreparedData":
    """The made-up data set; no test changes it."""
    from synthetic import toy_data

    return toy_data()


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The folder of mirrored public measurements; tests that need it are skipped without one."""
    folder = os.environ.get(MIRROR_VARIABLE)
    if not folder:
        pytest.skip(f"{MIRROR_VARIABLE} is not set: fetch traces with `gnnperf data fetch` and point it at the folder")
    if not Path(folder).is_dir():
        pytest.fail(f"{MIRROR_VARIABLE} names {folder}, which is not a folder")
    return Path(folder)
