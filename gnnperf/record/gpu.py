"""What a card says about a GPU: model, memory, clocks and driver; nothing that names the one device or its host."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import torch

DRIVER = Path("/proc/driver/nvidia/version")
TOLD = {  # column of nvidia-smi -> key of the card
    "clocks.sm": "clock_mhz",
    "clocks.max.sm": "max_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "power.limit": "power_limit_w",
}
TIMEOUT_S = 10.0


def gpu_facts(index: int) -> dict[str, object]:
    """Of one CUDA device."""
    properties = torch.cuda.get_device_properties(index)
    return {
        "kind": "gpu",
        "name": properties.name,
        "index": index,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "num_sms": properties.multi_processor_count,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
    }


def gpu_clocks(index: int) -> dict[str, float | None]:
    """Of one CUDA device, now; null where nvidia-smi is absent or silent."""
    unique = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    if shutil.which("nvidia-smi") is None or unique is None:
        return dict.fromkeys(TOLD.values())
    query = ["nvidia-smi", f"--id=GPU-{unique}", f"--query-gpu={','.join(TOLD)}", "--format=csv,noheader,nounits"]
    try:
        line = subprocess.run(query, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return dict.fromkeys(TOLD.values())
    return parse_clocks(line)


def parse_clocks(line: str) -> dict[str, float | None]:
    """`1980, 1980, 2619, 700.00` -> the card's keys; what is not a number (`[N/A]`) is null."""
    words = [word.strip() for word in line.strip().split(",")]
    numbers = [float(word) if re.fullmatch(r"\d+(\.\d+)?", word) else None for word in words]
    return dict(zip(TOLD.values(), [*numbers, *[None] * len(TOLD)], strict=False))


def driver_version() -> str | None:
    """Of the NVIDIA kernel module, e.g. 550.54.15; None without one."""
    try:
        text = DRIVER.read_text(encoding="utf-8")
    except OSError:
        return None
    return parse_driver(text)


def parse_driver(text: str) -> str | None:
    """The version in what the kernel module says about itself."""
    result = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return result[1] if result else None
