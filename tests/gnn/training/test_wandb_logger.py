"""What a wandb run holds, kept offline: all there is to look at, nothing of the machine."""

from __future__ import annotations

import platform
import re
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from plotly.graph_objects import Figure

from gnnperf.gnn.data.prepare import DataConfig
from gnnperf.gnn.training.config import LoggerConfig, LoggerKind, TrainConfig
from gnnperf.gnn.training.look import open_log, settings_of

SECRET = "f00f" * 10  # as long as a wandb key


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "staging"))
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # wandb's own
        yield


def config(out: Path, **changes: object) -> TrainConfig:
    return TrainConfig(out=str(out), logger=LoggerConfig(kind=LoggerKind.wandb), **changes)  # type: ignore[arg-type]


def journals(out: Path) -> list[Path]:
    return sorted(out.rglob("*.wandb"))


def written(journal: Path, awaited: tuple[bytes, ...], seconds: float = 30.0) -> bytes:
    """The journal as soon as it holds all that is awaited: wandb's own process writes it, at times after we go on."""
    end = time.monotonic() + seconds
    while not all(text in journal.read_bytes() for text in awaited) and time.monotonic() < end:
        time.sleep(0.1)
    return journal.read_bytes()


def test_a_run_holds_the_configuration_and_all_that_is_logged(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with open_log(config(out, seed=41)) as log:
        log.curves.log_metrics({"val_loss": 0.125}, step=0)
        log.table("errors", pd.DataFrame({"family": ["gemm"], "gmae": [0.25]}))
        log.figure("parity", Figure(layout={"title": "what is shown"}))
        log.fact("checkpoint_sha256", "ab12")
    (journal,) = journals(out)
    wanted = (b'"learning_rate":0.003', b"\x04seed\x82\x01\x0241", b"val_loss", b"checkpoint_sha256", b"ab12")
    assert [text for text in wanted if text not in written(journal, wanted)] == []
    (table,) = out.rglob("*.table.json")
    assert '"data":[["gemm",0.25]]' in table.read_text()
    (figure,) = out.rglob("*.plotly.json")
    assert "what is shown" in figure.read_text()
    assert (out / "tables" / "errors.csv").is_file()  # the files are there as well


def test_nothing_of_the_machine_is_in_it(tmp_path: Path) -> None:
    out = tmp_path / "secretfolder" / "out"
    data = DataConfig(path=str(tmp_path / "secretfolder" / "mine"), cache_dir="~/secretfolder/cache")
    with open_log(config(out, data=data)) as log:
        log.table("errors", pd.DataFrame({"family": ["gemm"]}))
    (journal,) = journals(out)
    sent = [journal, *(path for path in (journal.parent / "files").rglob("*") if path.is_file())]
    assert len(sent) >= 2
    text = b"".join(path.read_bytes() for path in sent)
    for private in ("secretfolder", SECRET, str(Path.cwd()), str(Path(__file__).parent), platform.node()):
        assert not re.search(rb"\b" + re.escape(private.encode()) + rb"\b", text), private


def test_paths_are_logged_by_name_only(tmp_path: Path) -> None:
    data = DataConfig(path=str(tmp_path / "mine"), op_tables=["datasets/cpu-ops/ops.parquet", "/a/b/ops.parquet"])
    logged = settings_of(config(tmp_path / "out", data=data, resume="~/old/last.ckpt"))
    assert (logged["data"]["path"], logged["out"], logged["resume"]) == ("mine", "out", "last.ckpt")
    assert logged["data"]["op_tables"] == ["datasets/cpu-ops/ops.parquet", "ops.parquet"]
    assert type(logged["logger"]["kind"]) is str


def test_each_job_has_a_run_of_its_own_and_a_resumed_one_goes_on(tmp_path: Path) -> None:
    for made in (config(tmp_path / "0"), config(tmp_path / "1"), config(tmp_path / "0", resume="auto")):
        with open_log(made) as log:
            log.fact("seed", 0)
    zero, one = ({path.name for path in journals(tmp_path / job)} for job in ("0", "1"))
    assert len(zero) == len(one) == 1  # file names hold the run's id
    assert zero != one


def test_a_failed_training_ends_its_run(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), open_log(config(tmp_path / "0")):
        raise ZeroDivisionError
    with open_log(config(tmp_path / "1")) as log:
        log.fact("seed", 1)
    assert len(journals(tmp_path / "0")) == len(journals(tmp_path / "1")) == 1
