from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
from plotly.graph_objects import Figure

from gnnperf.gnn.training.config import TrainConfig
from gnnperf.gnn.training.look import FolderLog, open_log


def test_tables_figures_and_facts_are_files(tmp_path: Path) -> None:
    log = FolderLog(tmp_path / "out")
    log.table("errors", pd.DataFrame({"family": ["gemm"], "gmae": [0.25]}))
    log.figure("parity", Figure(layout={"title": "what is shown"}))
    log.fact("checkpoint_sha256", "ab12")
    log.fact("score", 0.5)
    assert (tmp_path / "out" / "tables" / "errors.csv").read_text() == "family,gmae\ngemm,0.25\n"
    page = (tmp_path / "out" / "figures" / "parity.html").read_text()
    assert "what is shown" in page
    assert "<script src=" not in page  # works offline
    assert json.loads((tmp_path / "out" / "facts.json").read_text()) == {"checkpoint_sha256": "ab12", "score": 0.5}


def test_csv_is_the_default(tmp_path: Path) -> None:
    with open_log(TrainConfig(out=str(tmp_path))) as log:
        assert isinstance(log, FolderLog)
        assert log.out == tmp_path
