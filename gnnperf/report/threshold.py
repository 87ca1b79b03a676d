"""Limits on a predicted step, for CI: what is compared is read before the work, what is beyond ends in exit code 4."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnperf.core import InputError, StepTimeKind, require
from gnnperf.predict import StepPrediction
from gnnperf.report.compare.cli import EXCEEDED
from gnnperf.report.compare.side import read_step
from gnnperf.report.compare.text import Limits


class StepTooLong(InputError):
    """The answer is beyond a limit: nothing is wrong with the input, so that scripts can tell it from a mistake."""

    exit_code = EXCEEDED


@dataclass(frozen=True)
class Threshold:
    """What the step may not exceed.

    Attributes:
        limits: see there.
        against: what `limits.max_regression` is measured from, ("" nothing): its name, step time and kind.
    """

    limits: Limits
    against: str = ""
    before_us: float | None = None
    before_kind: StepTimeKind | None = None

    def check(self, answer: StepPrediction) -> None:
        """Refuse a step that is too long.

        Raises:
            StepTooLong: naming the limits.
            InputError: the step times are of different kinds, which are different quantities.
        """
        if self.before_kind is not None and self.before_kind is not answer.step_time_kind:
            raise InputError(f"its step is a {self.before_kind}, the predicted one a {answer.step_time_kind}",
                             where=self.against, allowed="two steps of one kind: periods, makespans or windows",
                             remedy="choose another step (step=N)")  # fmt: skip
        texts = self.limits.sentences("the step", answer.step_time_us, f"that of {self.against}", self.before_us)
        if texts:
            raise StepTooLong("; ".join(texts))


def read_threshold(max_step_ms: float | None, max_regression: float | None, against: str | None) -> Threshold:
    """The limits requested.

    Raises:
        InputError: a regression from nothing or nothing from it, a value that is no limit, or no prediction is there.
    """
    require((max_regression is None) == (against is None), "max_regression", max_regression,
            "with against: a prediction of predict.py that the step is compared with")  # fmt: skip
    limits = Limits(max_step_ms, max_regression)
    if against is None:
        return Threshold(limits)
    before_us, kind = read_step(Path(against))
    return Threshold(limits, against, before_us, kind)
