"""Predict a step from a profiler trace: as recorded, on other hardware, after two changes, and what holds it up.

python examples/predict_trace.py trace.json.gz [h100_sxm ...]
"""

from __future__ import annotations

import sys

import gnnperf


def main(trace: str, *devices: str) -> None:
    """Print the step, its findings, other devices and two what-ifs."""
    own = gnnperf.predict(trace, memory=False)
    print(f"step: {own.step_time_us / 1e3:.2f} ms")
    for finding in own.findings:
        print(f"finding: {finding.rule}")
    top = own.to_dataframe().groupby("op_name", observed=True)["latency_us"].sum().nlargest(5)
    print(top.round(1).to_string())
    for device in devices:  # measured latencies, times the ratio that the model predicts
        other = gnnperf.predict(trace, hardware=device, memory=False, findings=False)
        print(f"{device}: {other.step_time_us / 1e3:.2f} ms, ratio {other.step_time_us / own.step_time_us:.2f}")
    for edit in ({"batch": {"factor": 2}}, {"latency": {"op": "aten::mm", "factor": 0.5}}):
        whatif = gnnperf.predict(trace, whatif=[edit], memory=False, findings=False).step.whatif
        assert whatif is not None
        print(f"{edit}: {whatif.step_time_us / 1e3:.2f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
