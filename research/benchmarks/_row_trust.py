"""How far a network of op tables is trusted at a row, on a GPU that it was trained on or not.

    weight = of numbers beyond training x of states unlike training  as gnnperf.gnn.trust has them for nodes of traces

That is all of the gate on a GPU that training lacks, where it had several others (gnnperf.gnn.trust.trust).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gnnperf.gnn.trust import OodDistance, fit_ood_distance
from gnnperf.gnn.trust.ood_distance import KEPT
from gnnperf.gnn.trust.trust import LEAST, States, distance_weights, out_of_range, read_states
from research.pretraining.encode import COMPUTE, EncodedRows
from research.pretraining.fit import CHUNK, OpModel


@dataclass(frozen=True)
class RowTrust:
    """What training rows looked like.

    Attributes:
        model: that was trained on them.
        own, around: likeness of states, of a row by itself and with its device.
    """

    model: OpModel
    own: OodDistance
    around: OodDistance

    def weight(self, rows: EncodedRows) -> np.ndarray:
        """[n] 0 to 1; what is hardly trusted is not trusted."""
        result = distance_weights(*self.distances(rows)).prod(axis=0)
        return np.where(result < LEAST, 0.0, result)

    def distances(self, rows: EncodedRows) -> tuple[np.ndarray, np.ndarray]:
        """[n] beyond the training range, in spreads; [n] unlikeness, 1: as nineteen twentieths of other rows."""
        parts = [rows.part(places) for places in torch.arange(len(rows.base_us)).split(CHUNK)]
        states = [_states(self.model, part) for part in parts]
        unlike = [
            torch.maximum(self.own.unlike(COMPUTE, s.own[COMPUTE]), self.around.unlike(COMPUTE, s.around[COMPUTE]))
            for s in states
        ]
        out, _ = out_of_range(self.model.normalizer, COMPUTE, rows.x)
        return out.double().numpy(), torch.cat([*unlike, torch.zeros(0)]).double().numpy()


def fit_row_trust(model: OpModel, others: EncodedRows) -> RowTrust:
    """Of a trained model."""
    train = model.prepared.train
    some = torch.arange(0, len(train.base_us), max(len(train.base_us) // (2 * KEPT), 1))
    seen, usual = _states(model, train.part(some)), _states(model, others)
    own, around = (
        fit_ood_distance([{COMPUTE: one[COMPUTE]}], [{COMPUTE: two[COMPUTE]}])
        for one, two in ((seen.own, usual.own), (seen.around, usual.around))
    )
    return RowTrust(model, own, around)


def _states(model: OpModel, rows: EncodedRows) -> States:
    return read_states(model.network, model.normalizer.apply(rows.data()))
