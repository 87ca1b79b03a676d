"""What a measuring method sees of the device's time: observed = ((host wait)^p + (issue + device)^p)^(1/p).

A pair of events around an eager call ends no sooner than the host has recorded both (`analytic.observation` draws it);
a profiler and replayed graphs see the device by itself, which is a wait of 0. The network predicts for the device; this
stands between its prediction and the label, in training and in judging.

    wait of a GPU's host = typical wait x its smallest rows / those of the typical GPU

NeuSight's convolutions were called in random order by a process whose host got slower from size to size; their wait
grows with the calls before, at a pace that a GPU's short rows tell.

Whose host a GPU that was never measured sits in, no specification shows: it gets the typical one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.analytic.memory_bound.constants import EventGap
from research.fitting.forms import CONVOLUTION, FormConstants, base_us, families, form_names
from research.fitting.memory import call_times_us
from research.tables import grouped
from research.tables.observation import SHARPNESS

UNFITTED_ISSUE_SHARE = 0.5  # of tables that no constants were fitted on
BEFORE = 1.0  # share of a wait that is over when the kernel starts: what is read is the sum of both
LEAST_PACE = 0.01  # keeps a wait where short rows say that there is none
LEAST_WAIT_US = 1e-6  # keeps logarithms finite


@dataclass(frozen=True)
class Wait:
    """Of one table: the typical wait, the part of it before the kernel starts, and how soft the maximum is."""

    call_us: float  # of a first call
    issue_share: float  # part of it before the kernel starts
    sharpness: float  # p
    growth_us: float = 0.0  # by which every call before lengthens it

    def of(self, calls_before: np.ndarray) -> np.ndarray:
        """[n] us of calls that had so many before them (NaN: unknown, as a first one)."""
        return self.call_us + self.growth_us * np.nan_to_num(calls_before)


@dataclass(frozen=True)
class Observation:
    """How methods see, as training rows tell."""

    # (source, table) -> wait of the typical GPU, for tables with the launch inside
    waits: Mapping[tuple[str, str], Wait]
    shares: Mapping[tuple[str, str, str], float]  # (source, device, table) -> a GPU's wait over the typical one

    def of(self, rows: pd.DataFrame) -> "Observed":
        """The waits of these rows; a table that training rows did not have waits like the mean of its source's."""
        result = np.zeros((len(rows), 3))  # [n, 3] wait, issue, sharpness
        result[:, 2] = 1.0
        late = rows["launch_included"].to_numpy(bool)
        for (source, device, table), places in grouped(rows, ("source", "device", "table")):
            if late[places].any():
                wait = self.waits.get((source, table)) or self._mean(source)
                share = self.shares.get((source, device, table), 1.0)
                call = share * wait.of(rows["calls_before"].to_numpy(float)[places])  # [k]
                result[places, 0] = call if wait.issue_share < BEFORE else 0.0
                result[places, 1], result[places, 2] = call * wait.issue_share, wait.sharpness
        return Observed(*np.where(late[:, None], result, [0.0, 0.0, 1.0]).T)

    def _mean(self, source: str) -> Wait:
        steady = {key: wait for key, wait in self.waits.items() if not wait.growth_us}
        own = [wait for (s, _), wait in steady.items() if s == source] or list(steady.values())
        numbers = np.array([[w.call_us, w.issue_share, w.sharpness] for w in own] or [[0.0, 0.0, 1.0]])  # [waits, 3]
        return Wait(*numbers.mean(axis=0).tolist())


@dataclass(frozen=True)
class Observed:
    """Waits of [n] rows: float64 each."""

    call_us: np.ndarray  # the host's time of the call, which a long kernel hides; 0: none
    issue_us: np.ndarray  # of it, before the kernel starts
    sharpness: np.ndarray  # p

    def read_us(self, device_us: np.ndarray) -> np.ndarray:
        """[n] us that the method reads -> from [n] us of the device; smooth."""
        call = np.log(np.maximum(self.call_us, LEAST_WAIT_US))  # [n]
        begun = np.log(self.issue_us + device_us)  # [n]
        soft = np.logaddexp(self.sharpness * call, self.sharpness * begun) / self.sharpness  # [n]
        return np.exp(np.where(self.call_us > 0, soft, begun))


def fit_observation(rows: pd.DataFrame, constants: FormConstants) -> Observation:
    """From training rows (research.fitting.forms.usable) and the constants that were fitted on the same GPUs."""
    late = rows[rows["launch_included"].to_numpy(bool)]
    waits: dict[tuple[str, str], Wait] = {}
    shares: dict[tuple[str, str, str], float] = {}
    for source, part in late.groupby("source"):
        floors = call_times_us(part)  # (device, table) -> us
        for table, here in part.groupby("table"):
            own = {device: us for (device, name), us in floors.items() if name == table}
            typical = float(np.median(list(own.values())))
            wait = _wait(here, str(table), typical, constants)
            given = (
                _machine_scales(here, wait, constants) if wait.growth_us else {d: us / typical for d, us in own.items()}
            )
            waits[str(source), str(table)] = wait
            shares |= {(str(source), device, str(table)): share for device, share in given.items()}
    return Observation(waits, shares)


def _machine_scales(rows: pd.DataFrame, wait: Wait, constants: FormConstants) -> dict[str, float]:
    """Device -> pace of its host over the typical one's, where the wait is most of a row."""
    result = {}
    for device, part in rows.groupby("device"):
        typical, kernel = wait.of(part["calls_before"].to_numpy(float)), base_us(part, constants)  # [n]
        short = kernel < typical
        if short.any():
            result[str(device)] = float(
                np.median((part["latency_us"].to_numpy(float) - kernel)[short] / typical[short])
            )
    return {device: max(machine_scale, LEAST_PACE) for device, machine_scale in result.items()}


def _wait(rows: pd.DataFrame, table: str, typical_us: float, constants: FormConstants) -> Wait:
    """What the fit of the form found, else the smallest rows."""
    members = constants.gemm.get(str(families(rows)[0]), ()) if rows["k"].notna().all() else ()
    if members:
        launch, power = (float(np.mean([getattr(m, name) for m in members])) for name in ("launch_us", "launch_power"))
        return Wait(launch, 0.0, power)
    if (form_names(rows) == CONVOLUTION).all() and constants.convolution is not None:
        return Wait(constants.convolution.call_us, BEFORE, 1.0, constants.convolution.growth_us)
    gaps = constants.memory.gaps if constants.memory is not None else {}
    gap = gaps.get(table, EventGap(typical_us, UNFITTED_ISSUE_SHARE))
    return Wait(gap.call_us, gap.issue_share, SHARPNESS)
