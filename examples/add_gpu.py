"""Describe a GPU that the catalog lacks, and predict the training step of a plan on it.

    python examples/add_gpu.py

Numbers come from a data sheet. Measured rows of single ops correct them: docs/how-to/new-gpu.md.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import gnnperf

GPU = """\
name: my_gpu
kind: gpu
architecture: ada
aliases: [My GPU]
flops_per_s: # peak, dense; *_matrix: with matrix units
  float32: 40.0e+12
  float16: 40.0e+12
  bfloat16: 40.0e+12
  float32_matrix: 80.0e+12
  float16_matrix: 160.0e+12
  bfloat16_matrix: 160.0e+12
memory_bandwidth_bytes_per_s: 640e+9
l2_bytes: 50331648
num_sms: 72
clock_hz: 2170e+6
memory_bytes: 21474836480
source: an example
"""


def main() -> None:
    """Print the step time of a ResNet-50 on the new GPU and on two of the catalog."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "my_gpu.yaml"
        path.write_text(GPU)
        for device in (str(path), "l4", "a100_sxm_80gb"):
            step = gnnperf.predict(plan="resnet50", hardware=device, memory=False, findings=False)
            print(f"{step.step.hardware:15} {step.step_time_us / 1e3:8.2f} ms")


if __name__ == "__main__":
    main()
