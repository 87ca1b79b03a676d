"""How GPUs are joined: the matrix of `nvidia-smi topo -m`, and who can reach whose memory."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping

TIMEOUT_S = 30.0
GPU = re.compile(r"GPU(\d+)")
STYLE = re.compile(r"\x1b\[[0-9;]*m")  # nvidia-smi underlines its header
SELF = "X"
UNKNOWN = "unknown"

Pairs = dict[tuple[int, int], str]


def parse_topology(text: str) -> Pairs:
    """Pairs (i < j) of GPUs -> link: NV1.. (bonded NVLinks), PIX, PXB, PHB, NODE, SYS.

    Columns other than GPUs (adapters, CPU affinity) are left out.
    """
    lines = [STYLE.sub("", line).split() for line in text.splitlines()]
    header = next((words for words in lines if words and GPU.fullmatch(words[0]) and _is_header(words)), [])
    columns = [int(result[1]) for word in header if (result := GPU.fullmatch(word))]
    pairs: Pairs = {}
    for words in lines:
        if not words or words is header or not (row := GPU.fullmatch(words[0])):
            continue
        for column, link in zip(columns, words[1:], strict=False):
            if link != SELF and int(row[1]) < column:
                pairs[int(row[1]), column] = link
    return pairs


def _is_header(words: list[str]) -> bool:
    return SELF not in words


def read_topology(num_gpus: int) -> Pairs:
    """Of this machine's GPUs; "unknown" for pairs that nvidia-smi does not name (as where it is absent)."""
    given = parse_topology(_nvidia_smi())
    return {(a, b): given.get((a, b), UNKNOWN) for a in range(num_gpus) for b in range(a + 1, num_gpus)}


def _nvidia_smi() -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    try:
        return subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=TIMEOUT_S,
                              check=True).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""


def peer_access(num_gpus: int) -> dict[tuple[int, int], bool]:
    """Whether GPU i can read GPU j's memory directly, as CUDA says."""
    import torch

    pairs = [(a, b) for a in range(num_gpus) for b in range(num_gpus) if a != b]
    return {(a, b): torch.cuda.can_device_access_peer(a, b) for a, b in pairs}


def one_pair_per_link(pairs: Mapping[tuple[int, int], str]) -> list[tuple[int, int, str]]:
    """(i, j, link): the first pair of every kind of link."""
    first: dict[str, tuple[int, int]] = {}
    for pair, link in sorted(pairs.items()):
        first.setdefault(link, pair)
    return [(a, b, link) for link, (a, b) in first.items()]
