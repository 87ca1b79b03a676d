"""conf/analytic/evidence.yaml is what its command counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnperf.analytic.device_evidence import shipped_evidence
from research.benchmarks.device_evidence import cpu_evidence, gpu_evidence


def test_recordings_and_tables_of_cpus_are_as_shipped() -> None:
    assert tuple(cpu_evidence()) == tuple(one for one in shipped_evidence() if one.constants == "cpu.yaml")


@pytest.mark.mirror
def test_op_tables_of_gpus_are_as_counted_in_the_mirror(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNPERF_DATA_MIRROR", str(mirror))
    assert tuple(gpu_evidence()) == tuple(one for one in shipped_evidence() if one.constants != "cpu.yaml")
