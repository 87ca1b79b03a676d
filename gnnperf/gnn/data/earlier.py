"""What a network was told before that now trains on: new data are told in the same words and on the same scales."""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.analytic import AnalyticConstants
from gnnperf.core import InputError
from gnnperf.gnn.data.floors import TypedFloors
from gnnperf.gnn.data.normalizer import Normalizer
from gnnperf.gnn.data.vocabulary import Vocabulary


@dataclass(frozen=True)
class Earlier:
    """Of an earlier training.

    Attributes:
        vocabulary: its words; new ones are added behind them.
        normalizer: its scales; ranges widen.
        device_kind: of the devices that it was of; "" any.
        residual_target: whether its network corrects the analytical answer (DataConfig.residual_target).
        base: what it corrects, and goes on correcting; None: the new data fit their own.
    """

    vocabulary: Vocabulary
    normalizer: Normalizer
    device_kind: str
    residual_target: bool
    base: tuple[AnalyticConstants, TypedFloors] | None

    def check(self, device_kind: str, residual_target: bool) -> None:
        """Refuse data in which its corrections mean nothing.

        Raises:
            InputError: another kind of device, another target.
        """
        if self.device_kind not in ("", device_kind):
            told = f"the checkpoint is of runs on a {self.device_kind}, these are on a {device_kind}"
            raise InputError(told, where="init_from", remedy="start from a checkpoint of such devices, or afresh")
        if self.residual_target != residual_target:
            raise InputError(f"trains on with another target than before ({residual_target})",
                             where="data.residual_target", allowed=str(self.residual_target))  # fmt: skip
