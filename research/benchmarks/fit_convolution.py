"""Fit the constants of Winograd's forms and write conf/analytic/convolution.yaml.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.fit_convolution [OUT.yaml]

From NeuSight's convolutions (MIT) on every device of the catalog, with the constants of products and streams that ship.
To judge the model, `python -m research.benchmarks.convolution` fits all of them again without the chip that it is
judged on.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gnnperf.analytic.convolution_constants import FILE, save_convolution_constants
from gnnperf.analytic.convolution_fit import fit_convolution_constants
from gnnperf.analytic.kernel_constants import default_gemm_constants
from gnnperf.analytic.memory_constants import default_memory_constants
from gnnperf.hardware.conf_folders import conf_dir
from research.benchmarks._neusight import convolution_rows

PROVENANCE = (
    "fitted by research/benchmarks/fit_convolution.py on the convolutions of sitar-lab/NeuSight (MIT; float32 "
    "forward, 3 x 3 "
    "windows at stride 1, torch 2.1, {devices}). Do not judge the model on those devices with these constants."
)


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else conf_dir("analytic") / FILE
    rows, devices = convolution_rows()
    said = PROVENANCE.format(devices=", ".join(sorted(devices)))
    found = fit_convolution_constants(rows, devices, default_gemm_constants(), default_memory_constants(), said)
    save_convolution_constants(found, out)
    print(out.read_text())


if __name__ == "__main__":
    main()
