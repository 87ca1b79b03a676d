from pathlib import Path

import pytest

from gnnperf.predict import api
from tests.toys import two_rank_graph


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that reads as the toy graph."""
    path = tmp_path / "toy.json"
    path.write_text("{}")
    monkeypatch.setattr(api, "load_graph", lambda *_: two_rank_graph())
    return path
