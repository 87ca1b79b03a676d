"""Predict a recorded step for other hardware: measured latencies, scaled by the ratio that the model predicts.

python examples/other_gpu.py trace.json.gz h100_sxm h200
"""

from __future__ import annotations

import sys

import gnnperf


def main(trace: str, *devices: str) -> None:
    """Print the step on the traced device and on each other one."""
    own = gnnperf.predict(trace, memory=False, findings=False)
    print(f"{'device':20} {'step ms':>10} {'ratio':>6}")
    print(f"{'as traced':20} {own.step_time_us / 1e3:10.2f} {1:6.2f}")
    for device in devices:
        other = gnnperf.predict(trace, hardware=device, memory=False, findings=False)
        print(f"{device:20} {other.step_time_us / 1e3:10.2f} {other.step_time_us / own.step_time_us:6.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
