"""Predict a step from a profiler trace: as recorded, after two changes, and what holds it up.

python examples/predict_trace.py trace.json.gz
"""

from __future__ import annotations

import sys

import gnnperf


def main(trace: str) -> None:
    """Print the step, its findings and two what-ifs."""
    own = gnnperf.predict(trace, memory=False)
    print(f"step: {own.step_time_us / 1e3:.2f} ms")
    for finding in own.findings:
        print(f"finding: {finding.rule}")
    top = own.to_dataframe().groupby("op_name", observed=True)["latency_us"].sum().nlargest(5)
    print(top.round(1).to_string())
    for edit in ({"batch": {"factor": 2}}, {"latency": {"op": "aten::mm", "factor": 0.5}}):
        whatif = gnnperf.predict(trace, whatif=[edit], memory=False, findings=False).step.whatif
        assert whatif is not None
        print(f"{edit}: {whatif.step_time_us / 1e3:.2f} ms")


if __name__ == "__main__":
    main(sys.argv[1])
