"""Op calls of traces answered by networks of op tables: by how much the closed form's latency is corrected.

A correction counts as far as the measuring method could see the device: behind the wait for a launch nothing was
learned, and the closed form stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gnnperf.analytic import has_forms
from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.hardware import DeviceSpec
from research.pretraining.calls import KIND, CallRows, rows_of_calls
from research.pretraining.encode import encode_calls
from research.pretraining.op_checkpoint import OpCheckpoint, OpNetwork


@dataclass(frozen=True)
class Corrections:
    """Of [n] calls.

    Attributes:
        log_factor: what is added to log us; 0 where nothing answers.
        answered: bool, whether a network answers.
    """

    log_factor: np.ndarray
    answered: np.ndarray


def corrections(
    checkpoint: OpCheckpoint, calls: Sequence[KernelCall], base_us: np.ndarray, device: DeviceSpec
) -> Corrections:
    """What the networks say about distinct calls on a device.

    Args:
        checkpoint: who answers for what.
        calls: [n].
        base_us: [n] the analytical answer; NaN: it has none.
        device: requested.
    """
    result = Corrections(np.zeros(len(calls)), np.zeros(len(calls), bool))
    if not has_forms(device) or device.measured:
        return result
    requested = rows_of_calls(calls, device)
    known = base_us[requested.places] > 0  # [n]; NaN is not
    kinds = requested.rows[KIND].astype(str).tolist()
    answers = {kind: checkpoint.answer_of(kind) for kind in set(kinds)}
    own = np.array([answers[kind].is_own(device) for kind in kinds], bool)
    for network, here, shares in (
        (checkpoint.own, own, {kind: one.own_share for kind, one in answers.items()}),
        (checkpoint.others, ~own, {kind: one.others_share for kind, one in answers.items()}),
    ):
        share = np.array([shares[kind] for kind in kinds], float)
        rows = np.flatnonzero(known & here & (share > 0))
        if len(rows):
            part = CallRows(requested.rows.iloc[rows].reset_index(drop=True), requested.places[rows])
            result.log_factor[part.places] = share[rows] * _seen_residual(network, part, base_us, device)
            result.answered[part.places] = True
    return result


def _seen_residual(network: OpNetwork, requested: CallRows, base_us: np.ndarray, device: DeviceSpec) -> np.ndarray:
    """[n] corrections in log space, each as far as its method saw the device."""
    base = base_us[requested.places]
    rows = requested.rows.assign(latency_us=np.nan, device=_table_name(network, device))
    encoded = encode_calls(rows, base, device, network.vocabulary, network.observation)
    seen = encoded.observed.seen_share(torch.from_numpy(np.log(base)))
    return np.asarray((network.residual(encoded) * seen).numpy())


def _table_name(network: OpNetwork, device: DeviceSpec) -> str:
    """The name that waits go by: as a table has it, where it is one of a table."""
    tabled = {name for _, name, _ in network.observation.shares}
    return next((alias for alias in device.aliases if alias in tabled), device.name)
