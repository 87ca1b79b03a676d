"""Which rows of op tables train and judge, which GPUs are left out together, and samples that repeat."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gnnperf.analytic import has_forms
from gnnperf.core import InputError
from gnnperf.hardware import match_device
from research.fitting.forms import form_names
from research.tables import OpTable

NO_DEVICE = "device that the catalog does not know, or that the closed forms were not made for"
NO_FORM = "op without a closed form that is fitted again for every GPU left out"
GENERATION = "generation"


def usable(table: OpTable) -> OpTable:
    """Rows with a device and a closed form, with a column `generation`; what is left out is counted."""
    rows = table.rows
    devices = {str(name): match_device(str(name)) for name in rows["device"].unique()}
    known = rows["device"].map({name: d is not None and has_forms(d) for name, d in devices.items()}).to_numpy(bool)
    formed = form_names(rows) != ""  # [n]
    dropped = dict(table.dropped)
    for source, here in rows.groupby("source").indices.items():
        counts = {NO_DEVICE: (~known[here]).sum(), NO_FORM: (known[here] & ~formed[here]).sum()}
        dropped |= {f"{source}: {reason}": int(count) for reason, count in counts.items() if count}
    retained = rows[known & formed].reset_index(drop=True)
    if retained.empty:
        raise InputError("no row with a known device and op", where="op tables", remedy="gnnperf data fetch")
    result = {name: device for name, device in devices.items() if device is not None}
    generation = retained["device"].map({name: d.architecture or d.name for name, d in result.items()})
    return OpTable(retained.assign(**{GENERATION: generation}), dropped)


def sampled(rows: pd.DataFrame, per_group: int, by: Sequence[str], seed: int) -> np.ndarray:
    """Positions of at most so many rows of each group, ascending; the same for the same seed."""
    mixed = np.random.default_rng(seed).permutation(len(rows))
    place = rows.iloc[mixed].groupby(list(by), sort=False).cumcount().to_numpy()
    result: np.ndarray = np.sort(mixed[place < per_group])
    return result
