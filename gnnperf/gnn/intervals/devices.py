"""Intervals on a device without calibration, from what predictions missed on devices that were left out of fits.

generation left out       A     B     C           scores of each: log(measured / predicted without it), by group
its quantiles             |-a-| |-b-| |-c-|
bounds                    where those of one more generation are expected: `research.fitting.device_intervals`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import numpy as np
import pandas as pd
from msgspec import Meta

from gnnperf.analytic import read_constants
from gnnperf.core import require
from gnnperf.hardware import SEPARATOR, conf_dir

FILE = "unseen_gpu.yaml"  # in conf/analytic, written by `research.benchmarks.generations --write`


@dataclass(frozen=True)
class DeviceIntervals:
    """What predictions may miss on a device without calibration."""

    level: Annotated[float, Meta(gt=0.0, lt=1.0)]  # share of nodes that lie within
    # family and dtype, or family -> lower and upper log(measured / predicted)
    log_bounds: Mapping[str, tuple[float, float]]
    generations: tuple[str, ...]  # that were left out, one after the other
    provenance: str = ""  # where the numbers come from

    def __post_init__(self) -> None:
        for low, high in self.log_bounds.values():
            require(low < high, "log_bounds", [low, high], "a lower and an upper number")

    def bounds_us(self, family: np.ndarray, dtype: np.ndarray, latency_us: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[n] lowest and highest latency; NaN for families without bounds. None: family, dtype unknown."""
        pairs = pd.DataFrame({"family": family, "dtype": dtype}, dtype=object).fillna("")
        number = pairs.groupby(["family", "dtype"], sort=False).ngroup().to_numpy()  # [n] in order of appearance
        distinct = pairs.drop_duplicates().itertuples(index=False)
        bounds = np.array([self._log_bounds(*pair) for pair in distinct]).reshape(-1, 2)[number]
        return latency_us * np.exp(bounds[:, 0]), latency_us * np.exp(bounds[:, 1])

    def _log_bounds(self, family: str, dtype: str) -> tuple[float, float]:
        of_family = self.log_bounds.get(family, (np.nan, np.nan))
        return self.log_bounds.get(f"{family}{SEPARATOR}{dtype}", of_family)


def group_names(family: np.ndarray, dtype: np.ndarray) -> np.ndarray:
    """[n] text; an unknown dtype leaves the family by itself."""
    known = pd.Series(dtype, dtype=object).fillna("").astype(str)
    named = pd.Series(family, dtype=object).fillna("").astype(str)
    return (named + np.where(known != "", SEPARATOR + known, "")).to_numpy(str)


@cache
def shipped_intervals(name: str = FILE) -> DeviceIntervals:
    """Those of a file that ships."""
    return read_constants(conf_dir("analytic") / name, DeviceIntervals)
