"""What a card states about hosts and GPUs, read from texts like the kernel's."""

from pathlib import Path

import pytest

from gnnperf.record import host_state
from gnnperf.record.machine import parse_driver

CPUINFO = """processor\t: 0
model name\t: Some CPU @ 2.60GHz
cpu MHz\t\t: 2596.134
physical id\t: 0

processor\t: 1
model name\t: Some CPU @ 2.60GHz
cpu MHz\t\t: 1200.000
physical id\t: 1
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel that shows of two sockets, three caches and memory, and of no governor."""
    (tmp_path / "cpuinfo").write_text(CPUINFO)
    (tmp_path / "meminfo").write_text("MemTotal:       2048 kB\nMemFree: 1 kB\n")
    caches = (("1", "Data", "32K"), ("2", "Unified", "1024K"), ("3", "Unified", "2M"))
    for index, (level, kind, size) in enumerate(caches):
        cache = tmp_path / "cache" / f"index{index}"
        cache.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (cache / name).write_text(text + "\n")
    for name, path in (("PROCESSORS", "cpuinfo"), ("MEMORY", "meminfo"), ("CACHES", "cache"), ("FREQUENCY", "cpufreq")):
        monkeypatch.setattr(host_state, name, tmp_path / path)
    return tmp_path


def test_a_host_is_read_from_the_kernel(machine: Path) -> None:
    facts = host_state.host_facts()
    assert (facts["cpu"], facts["sockets"], facts["memory_bytes"]) == ("Some CPU @ 2.60GHz", 2, 2 * 2**20)
    assert facts["cache_bytes"] == {"l1d": 32 * 2**10, "l2": 2**20, "l3": 2 * 2**20}
    assert (facts["governor"], facts["max_clock_mhz"], facts["clock_mhz"]) == (None, None, 2596)


def test_a_governed_clock_is_read_where_there_is_one(machine: Path) -> None:
    (machine / "cpufreq").mkdir()
    texts = {"scaling_governor": "powersave", "scaling_max_freq": "3900000", "scaling_cur_freq": "800000"}
    for name, text in texts.items():
        (machine / "cpufreq" / name).write_text(text + "\n")
    facts = host_state.host_facts()
    assert (facts["governor"], facts["max_clock_mhz"], facts["clock_mhz"]) == ("powersave", 3900, 800)


def test_the_fingerprint_is_of_what_is_fixed(machine: Path) -> None:
    before = host_state.host_facts()["fingerprint"]
    (machine / "meminfo").write_text("MemTotal: 2047 kB\n")  # a kernel that keeps more for itself
    assert host_state.host_facts()["fingerprint"] == before
    (machine / "cache" / "index2" / "size").write_text("4M")
    assert host_state.host_facts()["fingerprint"] != before


def test_a_silent_kernel_gives_nulls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROCESSORS", "MEMORY", "CACHES", "FREQUENCY"):
        monkeypatch.setattr(host_state, name, tmp_path / "nothing")
    facts = host_state.host_facts()
    assert [facts[k] for k in ("sockets", "memory_bytes", "clock_mhz")] == [None] * 3 and facts["cache_bytes"] == {}


@pytest.mark.parametrize(
    "text",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (dvs@builder)",
    ],
)
def test_the_driver_is_its_number_only(text: str) -> None:
    assert parse_driver(text) == "550.54.15"
