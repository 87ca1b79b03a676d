"""What vTrain's iteration times are made of.

GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks vtrain_composition
"""

from __future__ import annotations

import sys

from research.benchmarks._public_runs import mirror
from research.benchmarks._vtrain import configurations, iteration_us
from research.benchmarks._vtrain_composition import composition


def main() -> int:
    """Print signs of a formula; nothing of the model is requested."""
    folder = mirror()
    plans = configurations(folder)
    result = composition(folder, plans, iteration_us(folder, plans))
    print(
        f"{result.numbers} numbers put together give all {len(plans)} labels: mean error {result.mean_error:.4%}, max "
        f"{result.max_error:.2%}"
    )
    print(f"a layer takes as long at every pipeline and data size: {result.slope_spread:.3%} apart at most")
    print(f"of twice the micro-batch a layer takes less time in {result.shorter} of {result.doubled} cases, by up to "
          f"{result.most_shorter:.0%}")  # fmt: skip
    print(f"what replicas add: {result.looked_up} of {result.replicas} cases are the entry of the table of all-reduces "
          f"({result.out_of_range} of them beyond its end, without the factor 2 (n - 1) / n)")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
