"""What a card states about a host: processor, caches, memory, clocks. Read from the kernel; null where it is silent."""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

PROCESSORS = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
FREQUENCY = Path("/sys/devices/system/cpu/cpu0/cpufreq")
MEMORY = Path("/proc/meminfo")
CACHE_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
FINGERPRINT_LENGTH = 16


def host_facts() -> dict[str, object]:
    """Of the host this process runs on; `fingerprint` shows whether two runs had the same kind of machine."""
    memory = next((line for line in (_text(MEMORY) or "").splitlines() if line.startswith("MemTotal:")), None)
    fixed = {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "sockets": len(set(_cpuinfo("physical id"))) or None,
        "cache_bytes": cache_bytes(),
        "memory_bytes": int(memory.split()[1]) * 1024 if memory else None,
        "kernel": kernel(),
    }
    return {"fingerprint": fingerprint(fixed), **fixed, "governor": _text(FREQUENCY / "scaling_governor"),
            "max_clock_mhz": _mhz(_text(FREQUENCY / "scaling_max_freq")), "clock_mhz": clock_mhz()}  # fmt: skip


def fingerprint(facts: Mapping[str, object]) -> str:
    """A digest of what makes a machine fast or slow; memory is left out, since kernels reserve varying parts of it."""
    decisive = {key: value for key, value in facts.items() if key != "memory_bytes"}
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
    return digest[:FINGERPRINT_LENGTH]


def cpu_model() -> str | None:
    """As the kernel names it; None where it does not say."""
    names = _cpuinfo("model name")
    return names[0] if names else platform.processor() or platform.machine() or None


def kernel() -> str:
    """The number only: what follows may name a distribution's build host."""
    return platform.release().split("-")[0]


def cache_bytes() -> dict[str, int]:
    """l1d, l1i, l2, l3 as the first core sees them; empty where the kernel does not say."""
    result = {}
    for place in sorted(CACHES.glob("index[0-9]*")):
        level, kind, size = (_text(place / name) for name in ("level", "type", "size"))
        if level and kind and size:
            unit = CACHE_UNITS.get(size[-1], 1)
            suffix = {"Data": "d", "Instruction": "i"}.get(kind, "")
            result[f"l{level}{suffix}"] = int(size.rstrip("KMG")) * unit
    return result


def clock_mhz() -> float | None:
    """Of the first core, now. Virtual machines report the nominal clock."""
    scaled = _mhz(_text(FREQUENCY / "scaling_cur_freq"))
    given = _cpuinfo("cpu MHz")
    return scaled if scaled is not None else round(float(given[0])) if given else None


def _cpuinfo(key: str) -> list[str]:
    lines = [line.partition(":") for line in (_text(PROCESSORS) or "").splitlines()]
    return [value.strip() for name, _, value in lines if name.strip() == key]


def _mhz(khz: str | None) -> float | None:
    return round(int(khz) / 1e3) if khz else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
