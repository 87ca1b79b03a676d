"""What pages leave to their readers: traces, runs, scripts, tables, and what an earlier page made."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from docs.made.calls import called
from docs.made.command_classes import every_command
from docs.made.markdown import blocks
from docs.made.pages import ROOT
from tests.trace.nsight_files import Export, step

TRACE = ROOT / "datasets/cpu-gloo/examples/gpt_l2_w64_s64_b4_x2_lo"  # two ranks, as torch.profiler wrote them
ONE_GPU = ROOT / "datasets/h200/examples/gpt_l4_w1024_s1024_b8_v32k_bfloat16_x1_lo"
CALIBRATION = ROOT / "datasets/h200/calibration"
# Of several programs, recorded on two machines.
OWN_RUNS = (
    "gpt_l2_w64_s64_b4_x1_lo", "resnet_n1_c24_i32_b16_x1_lo", "dlrm_t6_r10k_d16_b512_x1_lo", "rl_h128_n256_t4_x1_lo",
    "random_graph_s1_n16_e128k_b32_x1_lo",
)  # fmt: skip
SMALL = ("cpu-gloo", "cpu-again", "cpu-unseen", "cpu-programs", "h200")  # data sets of which a few runs are taken
RUNS_PER_PART = {"train": 3, "val": 1, "test": 1}  # of the small data sets
RUNS = ("my_runs", "mine", "runs_there")  # of the reader, next to what an earlier command records there
HOUR_NS = 3600 * 10**9
PAIRS = 2  # of runs before and after a change
REPLACED = (  # what a page leaves open -> what is run
    (r"cluster=NAME", "cluster=dgx_a100"), (r"\bNAME\b", "h100_sxm"),
    (r"^(trace=)?(TRACE|PATH)$|^(trace=)\.\.\.$", r"\1\3traces"),
    (r"\bOTHER_FOLDER\b", "outputs/other"), (r"\bFOLDER\b", "outputs/own"),
    (r"\b(FILE|CHECKPOINT)\b", "runs/model/checkpoint.pt"), (r"\bSCRIPT\b|\bgpt\.py$|train_gpt\.py", "program.py"),
    (r"data\.path=DIR", "data.path=my_runs"), (r"\bDIR\b", "made"), (r"\bN$", "1"), (r"\bEDIT\b", "batch=2x"),
    (r"^0-7$", "0-1"), (r"\$SLURM_ARRAY_TASK_ID", "0"),
)  # fmt: skip
OUTPUTS = {"--out", "--to", "--raw", "--html", "--tables", ">"}  # options of files that a command writes
LENGTHS = "\n".join(["length", *["200"] * 6, *["300"] * 6, "500", "700", "1000", "2000"]) + "\n"  # as what-if.md states
OPS = """\
{"op": "aten::addmm", "shapes": [[64], [32, 128], [128, 64]], "dtype": "float32"}
{"op": "aten::gelu", "shapes": [[32, 4096]], "dtype": "float32"}
"""
PROGRAM = """\
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

def build(width=64):
    layers = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.Adam(model.parameters())
    rows = torch.ones(32, width)
    def step():
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
    return step

def large():
    return build(int(sys.argv[-1]))

if __name__ == "__main__":
    dist.init_process_group("gloo")
    step = build()
    for _ in range(40):
        step()
    dist.barrier()
    dist.destroy_process_group()
"""
Maker = Callable[[Path, Path, str], None]  # the file, the folder of what all pages share, the text of the page


def _copy(source: Path) -> Maker:
    def make(path: Path, _shared: Path, _page: str) -> None:
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, path)

    return make


def _shared(name: str) -> Maker:
    return lambda path, shared, page: _copy(shared / name)(path, shared, page)


def _text(text: str) -> Maker:
    return lambda path, _shared, _page: _written(path, text)


def _written(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _yaml_of_page(path: Path, _shared: Path, page: str) -> None:
    """The page's own YAML; else a plan with tables, or a transformer."""
    own = [block.text for block in blocks(page) if block.language == "yaml" and block.text.startswith("name:")]
    plan = "dlrm_criteo" if "gnnperf shard" in page else "megatron_18b"
    _written(path, own[0] if own else (ROOT / "conf/plan" / f"{plan}.yaml").read_text(encoding="utf-8"))
    _written(path.parent / "lengths.csv", LENGTHS)


def _ops_of_page(path: Path, _shared: Path, page: str) -> None:
    """The page's first list of calls; else a short one."""
    own = [block.text for block in blocks(page) if block.language == "json" and block.text.startswith('{"op":')]
    _written(path, own[0] if own else OPS)


def _two_recordings(path: Path, _shared: Path, _page: str) -> None:
    """Two files of one rank, recorded an hour apart."""
    path.mkdir()
    trace = json.loads(gzip.decompress((ONE_GPU / "rank_0.kineto.json.gz").read_bytes()))
    for number in range(2):
        later = trace | {"baseTimeNanoseconds": trace["baseTimeNanoseconds"] + number * HOUR_NS}
        (path / f"host_{number}.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(later).encode()))


def _own_runs(source: str) -> Maker:
    """Runs of several programs, next to what was recorded there."""

    def make(path: Path, _shared: Path, _page: str) -> None:
        for run in OWN_RUNS:
            (path / run).mkdir(parents=True, exist_ok=True)
            if not (path / run / "1").exists():
                (path / run / "1").symlink_to(ROOT / "datasets" / source / run / "1")

    return make


def _nsight_export(path: Path, _shared: Path, _page: str) -> None:
    """Three steps of one rank, in the documented schema."""
    export = Export()
    for number in range(3):
        step(export, at_us=100 * number, mark=f"step {number}", first=901 + 10 * number)
    export.write(path)


def _first_window(path: Path, _shared: Path, _page: str) -> None:
    path.symlink_to(next(iter(path.parent.glob("steps_*"))))


# Made in the folder of a page when one of its commands names them, unless an earlier command has made them.
FILES: dict[str, Maker] = {
    **dict.fromkeys(["traces", "runs/trace_dir", "runs/imported"], _copy(TRACE)),
    **dict.fromkeys(
        [f"{name}.json.gz" for name in ("trace", "main", "branch", "big", "large")],
        _copy(TRACE / "rank_0.kineto.json.gz"),
    ),
    **{name: _copy(ONE_GPU / name) for name in ("rank_0.kineto.json.gz", "rank_0.et.json.gz")},
    "rank_0.sqlite": _nsight_export,
    "runs/big/steps_100-139": _first_window,
    **{f"runs/{name}/checkpoint.pt": _shared("model/checkpoint.pt") for name in ("model", "mine")},
    **{f"outputs/{name}": _shared("predicted") for name in ("own", "other", "a", "b", "larger")},
    **{f"outputs/predict/{name}": _shared("predicted") for name in ("a", "b", "before")},
    **{f"outputs/predict/{name}": _shared("planned") for name in ("main", "branch")},
    "outputs/learned": _shared("grid/records"),
    "outputs/grid/cells": _shared("grid/records"),
    "captured/mine": _shared("captured"),
    "calibrated/mine": _shared("calibration"),
    **{f"mine/{name}": _shared(f"calibration/{name}") for name in ("ops.parquet", "device.yaml", "cluster.yaml")},
    **dict.fromkeys(RUNS, _own_runs("cpu-gloo")),
    **dict.fromkeys(["same_runs_elsewhere", "runs_here"], _own_runs("cpu-again")),
    "ops.jsonl": _ops_of_page,
    "steps.csv": _text("64\n128\n64\n"),
    "raw": _own_runs("cpu-gloo"),
    "program.py": _text(PROGRAM),
    "collectives.yaml": _copy(ROOT / "conf/analytic/collective_models/h100_sxm_nccl_2_29.yaml"),
    **dict.fromkeys(["mine.yaml", "best.yaml", "rtx_4090.yaml"], _yaml_of_page),
}


def replaced(words: Sequence[str]) -> list[str]:
    """With what is run in place of what the page leaves open; a table measured on this machine is of no GPU."""
    result = []
    for word in words:
        if word == "..." or (word.startswith("hardware=") and any(other.startswith("measured=") for other in words)):
            continue
        word = word.replace("train.py", "program.py") if "record" in words else word
        for form, value in REPLACED:
            word = re.sub(form, value, word)
        result.append(str(Path(word).expanduser()) if word.startswith("~") else word)
    return result


def provide(words: Sequence[str], folder: Path, shared: Path, page: str) -> None:
    """Make the files that a command reads and that no earlier one of its page has written; remove what it writes."""
    for name in _read(words):
        path = folder / name
        if name in RUNS or not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            is_pair = name == "runs/trace_dir" and "--run" in words
            (_two_recordings if is_pair else FILES[name])(path, shared, page)
    for before, word in _pairs(words):
        if before in _outputs(words) and (folder / word).is_file():  # examples of a help text are alternatives
            (folder / word).unlink()


def reads_stand_ins(words: Sequence[str]) -> bool:
    """Whether a command reads what stands for files of the reader: a page shows its output on other files."""
    return any(FILES[name] not in (_yaml_of_page, _ops_of_page) for name in _read(words))


def _read(words: Sequence[str]) -> list[str]:
    """Names of FILES that a command reads."""
    read = [word for before, word in _pairs(words) if before not in _outputs(words) and not word.startswith("out=")]
    ends = {name: "$" if name in RUNS else r"(?![\w.-])" for name in FILES}
    return [name for name, end in ends.items()
            if any(re.search(rf"(?<![\w/.-]){re.escape(name)}{end}", word) for word in read)]  # fmt: skip


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(["", *words[:-1]], words, strict=True))


def _outputs(words: Sequence[str]) -> set[str]:
    return OUTPUTS | ({"--ops"} if "coverage" in words else set())


def share(folder: Path) -> None:
    """Make what all pages read: small data sets, a network, records of learners, a prediction, a captured step."""
    for name in SMALL:
        _small_data_set(ROOT / "datasets" / name, folder / "datasets" / name)
    (folder / "datasets/public").mkdir()  # data fetch writes into it
    for path in (ROOT / "datasets").iterdir():
        if not (folder / "datasets" / path.name).exists():
            (folder / "datasets" / path.name).symlink_to(path)
    _link_checkout(folder)
    _written(folder / "program.py", PROGRAM)
    _calibrated(folder / "calibration")
    for line in (
        f"gnnperf predict {TRACE} --out predicted --quiet",
        "gnnperf predict --plan llama2_70b_fsdp --gpu h100_sxm --out planned --quiet",
        "gnnperf capture program.py --ranks 2 --out captured",
        "python train.py out=model",
        "python train.py --multirun experiment=gnn,mlp,trees data.axis=workload out=grid cells=grid/records",
    ):
        code, _, errors = called(line.split(), folder)
        if code:
            raise RuntimeError(f"{line}: exit code {code}\n{errors}")


def _calibrated(folder: Path) -> None:
    """The shipped calibration of one GPU, with collectives as several would have them: 20 us, and 25 GB/s."""
    shutil.copytree(CALIBRATION, folder)
    ops = pd.read_parquet(folder / "ops.parquet")
    sizes = [4.0**power for power in range(6, 14)]
    rows = [{"op": "all_reduce", "kind": "collective", "message_bytes": size, "ranks": json.dumps(list(range(ranks))),
             "link": "pcie", "device": ops["device"].iloc[0], "latency_us": 20 + size * 2 * (ranks - 1) / ranks / 25e3}
            for ranks in (2, 4, 8) for size in sizes]  # fmt: skip
    pd.concat([ops, pd.DataFrame(rows)], ignore_index=True).to_parquet(folder / "ops.parquet")


def prepare(folder: Path, shared: Path) -> None:
    """Give the folder of a page what a checkout has where the commands are given."""
    folder.mkdir()
    (folder / "datasets").symlink_to(shared / "datasets")
    _link_checkout(folder)


def _link_checkout(folder: Path) -> None:
    for name in ("predict.py", "train.py", "examples"):
        (folder / name).symlink_to(ROOT / name)


def _small_data_set(source: Path, target: Path) -> None:
    """A few runs of each split, and of the changes with which runs were recorded."""
    target.mkdir(parents=True)
    splits = json.loads((source / "splits.json").read_text())
    for split in splits.values():
        for part, number in RUNS_PER_PART.items():
            runs = list(dict.fromkeys(name.rpartition("/")[0] for name in split[part]))
            split[part] = [name for name in split[part] if name.rpartition("/")[0] in runs[:number]]
    pairs = (
        json.loads((source / "interventions.json").read_text())["pairs"][:PAIRS]
        if (source / "interventions.json").exists()
        else []
    )
    names = {name.rpartition("/")[0] for split in splits.values() for part in split.values() for name in part}
    names |= {pair[side] for pair in pairs for side in "ab"}
    names |= set(re.findall(rf"datasets/{source.name}/([^/ ]+)", " ".join(map(str, every_command()))))
    _written(target / "splits.json", json.dumps(splits))
    _written(target / "interventions.json", json.dumps({"pairs": pairs}))
    for path in source.iterdir():
        if path.name in names | {"README.md", "examples", "calibration"}:
            (target / path.name).symlink_to(path)
