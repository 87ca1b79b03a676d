"""conf/analytic/evidence.yaml is what its command counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnperf.analytic.constants_file import read_constants
from gnnperf.analytic.device_evidence import EvidenceFile, shipped_evidence
from gnnperf.core.errors import InputError
from research.benchmarks.device_evidence import cpu_evidence, gpu_evidence
from research.fitting.files import save_evidence


def test_recordings_and_tables_of_cpus_are_as_shipped() -> None:
    assert tuple(cpu_evidence()) == tuple(one for one in shipped_evidence() if one.constants == "cpu.yaml")


@pytest.mark.mirror
def test_op_tables_of_gpus_are_as_counted_in_the_mirror(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNPERF_DATA_MIRROR", str(mirror))
    assert tuple(gpu_evidence()) == tuple(one for one in shipped_evidence() if one.constants != "cpu.yaml")


def test_evidence_survives_its_file(tmp_path: Path) -> None:
    save_evidence(shipped_evidence(), "made by a test", tmp_path / "evidence.yaml")
    assert read_constants(tmp_path / "evidence.yaml", EvidenceFile).evidence == shipped_evidence()


def test_a_row_without_a_count_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "evidence.yaml"
    path.write_text("provenance: a test\nevidence:\n- {device: t4, source: a/b, license: MIT, ops: bmm, "
                    "dtype: float32, rows: many, "
                    "fitted: 1, constants: gemm.yaml}\n")  # fmt: skip
    with pytest.raises(InputError, match="rows: value 'many'"):
        read_constants(path, EvidenceFile)
