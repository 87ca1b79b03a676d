"""Texts that a trace may hold about people and machines are in no output: planted once in every free-text field."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gnnperf.cli import main
from gnnperf.predict.api import Request, predict
from gnnperf.predict.request import Mode
from gnnperf.report import write_report
from tests.trace.kineto_files import call, device, document, host

HOST, USER, TOKEN = "plantedhost", "planteduser", "hf_PlantedTokenPlantedToken"
SECRETS = (HOST, USER, TOKEN, "plantedcommand", "plantedvalue", "plantednote")
TEXTS = (
    f"load /home/{USER}/data.bin", f"{USER}@{HOST}.example.org", f"PLANTED_KEY=plantedvalue {TOKEN}",
    f"python plantedcommand --out /home/{USER}", f"plantednote of {HOST}",
)  # fmt: skip


def _events() -> list[dict[str, Any]]:
    free = {"Call stack": TEXTS[0], "Module Hierarchy": TEXTS[1], "Python module": TEXTS[3], "comment": TEXTS[4]}
    ops = [
        host("ProfilerStep#5", 0, 400, "user_annotation", **{"External id": 1}, **free),
        host("aten::addmm", 15, 30, **{
            "External id": 2, "Input Dims": [[8], [8, 4], [4, 8]], "Input type": ["float"] * 3,
            "Concrete Inputs": [TEXTS[0], "", TEXTS[2]], **free,
        }),
        call("cudaLaunchKernel", 20, 5, 901),
        device("ampere_sgemm_128x64_nn", 30, 30, 901, **free),
    ]  # fmt: skip
    ranges = [
        host(text, 100 + 20 * n, 10, "user_annotation", **{"External id": 50 + n}) for n, text in enumerate(TEXTS)
    ]
    kernels = [call("cudaLaunchKernel", 220, 5, 903), device(f"kernel_of /home/{USER}/k.cu", 230, 5, 903)]
    meta = [{"ph": "M", "name": name, "pid": 100, "tid": 1, "ts": 0, "args": {"name": text, "labels": text}}
            for name, text in zip(("process_name", "process_labels", "thread_name"), TEXTS, strict=False)]  # fmt: skip
    return ops + ranges + kernels + meta


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """As torch's tensorboard_trace_handler names it: host, process id, time."""
    folder = tmp_path / "traces"
    folder.mkdir()
    environment = {"PLANTED_KEY": "plantedvalue"}
    top: dict[str, Any] = {"hostname": HOST, "traceName": TEXTS[0], "command_line": TEXTS[3], "env": environment}
    content = document(_events(), world_size=1, **top)
    content["deviceProperties"][0]["note"] = TEXTS[4]
    content["distributedInfo"]["token"] = TEXTS[2]
    (folder / f"{HOST}.example.org_4242.1698958768.pt.trace.json").write_text(json.dumps(content))
    card = {"workload": "gpt", "hosts": [{"name": HOST, "user": USER}], "command": TEXTS[3], "environment": TEXTS[2]}
    (folder / "run.json").write_text(json.dumps(card))
    return folder


def _texts(folder: Path) -> str:
    """All that the files hold, decompressed, and their names."""
    texts = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        data = path.read_bytes()
        texts.append(str(path.relative_to(folder)))
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            texts += [str(table.schema.metadata), str(table.to_pydict())]
        texts.append(data.decode("utf-8", "replace"))
    return "\n".join(texts)


def test_planted_texts_are_in_no_output(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    single = next(trace.glob("*.pt.trace.json"))
    out = tmp_path / "out"
    assert main(["import", str(trace), "--out", str(out / "imported")]) == 0
    assert main(["inspect", str(single)]) == 0
    for name, path in (("folder", trace), ("file", single), ("from_tables", out / "imported")):
        write_report(predict(Request(trace=path, mode=Mode.analytic, cache_dir=out / "cache")), out / name)
    assert main(["compare", str(out / "folder"), str(out / "file")]) == 0
    (tmp_path / "cut.json").write_text(single.read_text()[:-5])
    assert main(["inspect", str(tmp_path / "cut.json")]) == 2
    printed = "".join(capsys.readouterr()).replace(str(trace), "")
    written = _texts(out)
    assert "aten::addmm" in written and "sgemm" in written
    assert [secret for secret in (*SECRETS, str(trace)) if secret in written or secret in printed] == []
