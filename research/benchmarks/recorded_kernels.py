"""Kernels of recorded GPU runs, blind: closed forms next to the plain roofline, by what the fits had seen.

    python -m research.benchmarks recorded_kernels
    python -m research.benchmarks.recorded_kernels h100        the same of another GPU; it gave constants of norms
    python -m research.benchmarks.recorded_kernels h200 conv   every recording, and parts of the split

Prints a Markdown table. Latencies of equal calls of a run are means over its steps. The programs that train in the
split `program` gave constants; "others" are all other recordings. Errors are weighted by time: sum of |predicted -
measured| over measured. "total" is predicted over measured.
"""

from pathlib import Path

import pandas as pd

from gnnperf.analytic import default_constants
from gnnperf.analytic.kernels.dispatch import kernel_times, roofline_us
from gnnperf.core import InputError, OpFamily
from gnnperf.hardware import load_device
from research.benchmarks._frame import print_head, print_row, run_main
from research.fitting.recorded import OTHERS, TRAIN, recorded_calls

DATA, DEVICE_OF = Path("datasets"), {"h200": "h200", "h100": "h100_sxm"}  # of each data set
LEAST_SHARE = 0.003  # of the time: families and ops below it are in the sum only


def kernels(name: str) -> pd.DataFrame:
    """A row per distinct call of a data set's recordings: us of all kernels, measured, by form and by roofline."""
    if name not in DEVICE_OF:
        raise InputError(f"no data set {name!r}", where="recorded_kernels", allowed=", ".join(DEVICE_OF))
    device, power = load_device(DEVICE_OF[name]), default_constants("gpu").roofline_power
    rows = recorded_calls(DATA / name, device.name)
    calls, number = rows["call"].tolist(), rows["number"]
    form_us, plain_us = kernel_times(calls, device, power).latency_us, roofline_us(calls, device, power)
    return rows.assign(measured_us=rows["total_us"], form=form_us * number, roofline=plain_us * number)


def _figures(rows: pd.DataFrame) -> list[str]:
    known = rows[rows["form"].notna() & (rows["measured_us"] > 0)]
    if known.empty:
        return ["-"] * 4
    us = known["measured_us"].sum()
    errors = [f"{100 * (known[name] - known['measured_us']).abs().sum() / us:.1f}" for name in ("form", "roofline")]
    return [f"{us / 1e3:.1f}", *errors, f"{known['form'].sum() / us:.2f}"]


def main(arguments: list[str]) -> None:
    name, *families = arguments or ["h200"]
    rows = kernels(name)
    backward = rows["op"].str.contains("backward").map({True: ", backward", False: ""})
    apart = rows["family"].isin([str(one) for one in (OpFamily.CONV, OpFamily.ATTENTION, OpFamily.NORM)])
    rows["kind"] = rows["family"] + backward.where(apart, "")  # with the direction where that has forms of its own
    columns = ("ms", "error by time %", "roofline %", "total")
    if families:
        own = rows[rows["family"] == families[0]]
        print_head("kernels", "split", "run", *columns)
        for keys, part in pd.concat([own, own.assign(run="all")]).groupby(["kind", "split", "run"]):
            print_row(*keys, *_figures(part))
        return
    share = rows.groupby("part")["measured_us"].sum()
    print_head("kernels", *(f"{name}, {part}" for part in (TRAIN, OTHERS) for name in columns))
    groups = [(str(name), part) for name, part in rows.groupby("kind")]
    shown = [(name, part) for name, part in groups
             if part["measured_us"].sum() > LEAST_SHARE * share.sum() and part["form"].notna().any()]  # fmt: skip
    for name, part in [*shown, ("all", rows)]:
        print_row(name, *(figure for own in (TRAIN, OTHERS) for figure in _figures(part[part["part"] == own])))
    print_head("all kernels", *columns)
    for split, part in rows.groupby("split"):
        print_row(str(split), *_figures(part))


if __name__ == "__main__":
    run_main(main)
