"""What a training logs: files, an offline wandb run without anything of the machine, errors by group."""

import json
import math
import platform
import re
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from plotly.graph_objects import Figure

from gnnperf.gnn import DataConfig, ModelConfig, PreparedData, TypedGNN
from gnnperf.gnn.training import look
from gnnperf.gnn.training.config import LoggerConfig, LoggerKind, TrainConfig

SECRET = "f00f" * 10  # as long as a wandb key
NODES = pd.DataFrame(
    {
        "family": ["gemm", "gemm", "copy"],
        "node_type": ["compute", "compute", "memory"],
        "op_name": ["aten::mm", None, "aten::copy_"],
        "run": ["a", "a", "b"],
        "measured_us": [100.0, 200.0, 700.0],
        "predicted_us": [110.0, 240.0, 700.0],  # 10 % and 20 % too long, right
        "base_us": [150.0, 100.0, 1400.0],  # 50 % too long, 50 % too short, twice as long
    }
)


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


def test_a_run_holds_what_is_logged_and_nothing_of_the_machine(tmp_path: Path) -> None:
    out = tmp_path / "secretfolder" / "out"
    data = DataConfig(path=str(tmp_path / "secretfolder" / "mine"), cache_dir="~/secretfolder/cache")
    with look.open_log(config(out, data=data, seed=41)) as log:
        log.curves.log_metrics({"val_loss": 0.125}, step=0)
        log.table("errors", pd.DataFrame({"family": ["gemm"], "gmae": [0.25]}))
        log.figure("parity", Figure(layout={"title": "what is shown"}))
        log.fact("checkpoint_sha256", "ab12")
        (out / "checkpoint.pt").write_bytes(b"weights")
        log.keep(out / "checkpoint.pt")
    (journal,) = journals(out)
    wanted = (b'"learning_rate":0.003', b"\x04seed\x82\x01\x0241", b"val_loss", b"checkpoint_sha256", b"ab12",
              b"checkpoint.pt", b"model")  # fmt: skip
    assert [text for text in wanted if text not in written(journal, wanted)] == []
    (table,), (figure,) = out.rglob("*.table.json"), out.rglob("*.plotly.json")
    assert '"data":[["gemm",0.25]]' in table.read_text() and "what is shown" in figure.read_text()
    assert (out / "tables" / "errors.csv").is_file()  # the files are there as well

    sent = [journal, *(path for path in (journal.parent / "files").rglob("*") if path.is_file())]
    text = b"".join(path.read_bytes() for path in sent)
    for private in ("secretfolder", SECRET, str(Path.cwd()), str(Path(__file__).parent)):
        assert private.encode() not in text, private
    host = platform.node().encode()  # as a text of JSON, or of a protocol buffer: two letters occur by chance
    assert not re.search(rb'["' + re.escape(bytes([len(host)])) + rb"]" + re.escape(host) + rb"\b", text)


def test_paths_are_logged_by_name_only(tmp_path: Path) -> None:
    data = DataConfig(path=str(tmp_path / "mine"), op_tables=["datasets/cpu-ops/ops.parquet", "/a/b/ops.parquet"])
    logged = look.settings_of(config(tmp_path / "out", data=data, resume="~/old/last.ckpt"))
    assert (logged["data"]["path"], logged["out"], logged["resume"]) == ("mine", "out", "last.ckpt")
    assert logged["data"]["op_tables"] == ["datasets/cpu-ops/ops.parquet", "ops.parquet"]
    assert type(logged["logger"]["kind"]) is str


def test_each_job_has_a_run_of_its_own_and_a_resumed_one_goes_on(tmp_path: Path) -> None:
    for made in (config(tmp_path / "0"), config(tmp_path / "1"), config(tmp_path / "0", resume="auto")):
        with look.open_log(made) as log:
            log.fact("seed", 0)
    zero, one = ({path.name for path in journals(tmp_path / job)} for job in ("0", "1"))
    assert len(zero) == len(one) == 1  # file names hold the run's id
    assert zero != one


def test_a_failed_training_ends_its_run(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), look.open_log(config(tmp_path / "0")):
        raise ZeroDivisionError
    with look.open_log(config(tmp_path / "1")) as log:
        log.fact("seed", 1)
    assert len(journals(tmp_path / "0")) == len(journals(tmp_path / "1")) == 1


def test_tables_figures_and_facts_are_files(tmp_path: Path) -> None:
    with look.open_log(TrainConfig(out=str(tmp_path / "out"))) as log:
        assert type(log) is look.Log  # the default
        log.table("errors", pd.DataFrame({"family": ["gemm"], "gmae": [0.25]}))
        log.figure("parity", Figure(layout={"title": "what is shown"}))
        log.fact("checkpoint_sha256", "ab12")
        log.fact("score", 0.5)
    assert (tmp_path / "out" / "tables" / "errors.csv").read_text() == "family,gmae\ngemm,0.25\n"
    page = (tmp_path / "out" / "figures" / "parity.html").read_text()
    assert "what is shown" in page
    assert "<script src=" not in page  # works offline
    assert json.loads((tmp_path / "out" / "facts.json").read_text()) == {"checkpoint_sha256": "ab12", "score": 0.5}


def test_errors_by_group_longest_time_first() -> None:
    table = look.errors_by(NODES, "family", "node_type")
    assert table["family"].tolist() == ["copy", "gemm"]
    copy, gemm = table.to_dict("records")
    assert copy["gmae"] == pytest.approx(0.001)  # the floor of the metric
    assert copy["base_gmae"] == pytest.approx(1.0)
    assert (gemm["nodes"], gemm["time_share"]) == (2, pytest.approx(0.3))
    assert gemm["gmae"] == pytest.approx(math.sqrt(0.1 * 0.2))
    assert gemm["base_gmae"] == pytest.approx(0.5)
    assert gemm["median_ape"] == pytest.approx(0.15)
    assert gemm["bias"] == pytest.approx(math.sqrt(1.1 * 1.2) - 1)
    assert gemm["total_bias"] == pytest.approx(350 / 300 - 1)


def test_the_worst_nodes_err_by_most_time() -> None:
    table = look.worst(NODES, max_rows=2)
    assert table["measured_us"].tolist() == [200.0, 100.0]
    assert table["error_us"].tolist() == pytest.approx([40.0, 10.0])
    assert table["error_share"].tolist() == pytest.approx([0.8, 0.2])


def test_bars_are_errors_of_the_network_and_of_its_base() -> None:
    network, base = look.family_bars(look.errors_by(NODES, "family", "node_type"), "what is shown").data
    assert list(network.x) == ["copy, memory", "gemm, compute"]
    assert list(network.y) == pytest.approx([0.001, math.sqrt(0.1 * 0.2)])
    assert list(base.y) == pytest.approx([1.0, 0.5])


def test_a_sample_is_bounded_and_the_same_every_time() -> None:
    many = pd.concat([NODES] * 100, ignore_index=True).assign(row=range(300))
    sample = look.sampled(many, max_rows=40)
    assert len(sample) == 40
    assert sample["row"].is_monotonic_increasing and sample["row"].is_unique
    pd.testing.assert_frame_equal(sample, look.sampled(many, max_rows=40))
    assert sample["row"].tolist() != look.sampled(many, max_rows=40, seed=1)["row"].tolist()
    assert look.sampled(NODES)["log_error"].tolist() == pytest.approx([math.log(1.1), math.log(1.2), 0.0])


def test_rows_are_measured_nodes(data: PreparedData) -> None:
    nodes = look.node_outputs(TypedGNN(ModelConfig(hidden_channels=8), data.vocabulary), data.steps["val"])
    assert len(nodes) == 11  # 8 host, 2 products, 1 transfer; arrivals and exits take no time
    assert nodes["predicted_us"].tolist() == pytest.approx(nodes["base_us"].tolist())  # untrained
    measured = data.steps["val"][0].nodes["latency_us"].to_numpy()[nodes["node_id"].to_numpy()]
    assert nodes["measured_us"].tolist() == pytest.approx(measured.tolist())


def test_parity_is_predicted_against_measured_on_log_axes() -> None:
    figure = look.parity(NODES, "what is shown")
    points = {trace.name: trace for trace in figure.data if trace.mode == "markers"}
    assert list(points["compute"].x) == [100.0, 200.0]
    assert list(points["compute"].y) == [110.0, 240.0]
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert [list(line.x) for line in lines] == [[100.0, 700.0]] * 3
    assert sorted(round(line.y[1] / line.x[1], 9) for line in lines) == [0.9, 1.0, 1.1]
    assert look.parity(NODES[:0], "").data[-1].x.tolist() == [1.0, 10.0]
