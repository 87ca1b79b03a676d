"""What `nvidia-smi topo -m` prints, in two shapes."""

import pytest

from gnnperf.record.calibrate import comm
from gnnperf.record.calibrate.comm import UNKNOWN, one_pair_per_link, parse_topology, read_topology

FOUR_GPUS = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tSYS\tSYS\tPXB\t0-31\t0\t\tN/A
GPU1\tNV12\t X \tSYS\tSYS\tPXB\t0-31\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tNV12\tSYS\t32-63\t1\t\tN/A
GPU3\tSYS\tSYS\tNV12\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tPXB\tPXB\tSYS\tSYS\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""
ONE_GPU = """\
\tGPU0\tCPU Affinity\tNUMA Affinity
GPU0\t X \t0-15\tN/A
"""


def test_pairs_of_gpus_and_nothing_else():
    assert parse_topology(FOUR_GPUS) == {
        (0, 1): "NV12", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS", (2, 3): "NV12",
    }  # fmt: skip


def test_one_gpu_and_nothing_have_no_pairs():
    assert parse_topology(ONE_GPU) == parse_topology("") == {}


def test_one_pair_per_kind_of_link():
    assert one_pair_per_link(parse_topology(FOUR_GPUS)) == [(0, 1, "NV12"), (0, 2, "SYS")]


def test_what_nvidia_smi_does_not_say_is_unknown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(comm, "nvidia_smi", lambda *words, timeout_s: ONE_GPU)
    assert read_topology(2) == {(0, 1): UNKNOWN}
