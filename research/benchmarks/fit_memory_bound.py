"""Fit the constants of memory-bound kernels and write conf/analytic/memory_bound.yaml.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.fit_memory_bound [OUT.yaml]

From NeuSight's tables (MIT) of every device in the catalog. To judge the model, `python -m
research.benchmarks.memory_bound`
fits again without the generation that it is judged on.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gnnperf.analytic.memory_constants import FILE, save_memory_constants
from gnnperf.analytic.memory_fit import fit_memory_constants
from gnnperf.hardware.conf_folders import conf_dir
from research.benchmarks._neusight import memory_rows

PROVENANCE = (
    "fitted by research/benchmarks/fit_memory_bound.py on the elementwise, softmax and layer norm tables of "
    "sitar-lab/NeuSight "
    "(MIT; float32 forward, torch 2.1, {devices}). rereads, overlap_power and lane_cycles.other follow from how the "
    "kernels are written and are not fitted. Do not judge the model on those devices with these constants."
)


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else conf_dir("analytic") / FILE
    rows, devices = memory_rows()
    constants = fit_memory_constants(rows, devices, PROVENANCE.format(devices=", ".join(sorted(devices))))
    save_memory_constants(constants, out)
    print(out.read_text())


if __name__ == "__main__":
    main()
