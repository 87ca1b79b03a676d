"""What a rule suspects, and what is left of it once an edit has stated what a remedy would gain."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gnnperf.whatif.edit import Edit


class Basis(StrEnum):
    """Whose latencies a finding is about."""

    MEASURED = "measured"
    PREDICTED = "predicted"


@dataclass(frozen=True)
class Way:
    """A remedy as edits of the graph.

    Attributes:
        edits: made one after the other.
        text: what they do, in words or as an entry of `whatif`.
        at_most: they stand for more than a remedy can do: the gain is a bound.
        step_time_us: of the step with the remedy, where no edit of the graph stands for it; None: as the edits say.
    """

    edits: tuple[Edit, ...]
    text: str
    at_most: bool = False
    step_time_us: float | None = None


@dataclass(frozen=True)
class Suspect:
    """What a rule has seen.

    Attributes:
        rule: its name.
        cause: one sentence.
        evidence: sentences with figures.
        remedy: what to do about it.
        ways: the remedy as edits, the closest first; (): none tells its gain.
        unpriced: why nothing tells the gain, where `ways` is ().
    """

    rule: str
    cause: str
    evidence: tuple[str, ...]
    remedy: str
    ways: tuple[Way, ...] = ()
    unpriced: str = ""


@dataclass(frozen=True)
class Finding:
    """What holds the step up.

    Attributes:
        rule, cause, evidence, remedy: as the rule has seen it.
        basis: whose latencies this is about.
        edit: the edit whose gain this is ("" none).
        gain_us: by how much the step is shorter with the edit; None unknown.
        gain_share: of the step time; None unknown.
        at_most: the gain is a bound.
        unknown: what the edit cannot know, or why the gain is not known.
    """

    rule: str
    cause: str
    evidence: tuple[str, ...]
    remedy: str
    basis: Basis
    edit: str
    gain_us: float | None
    gain_share: float | None
    at_most: bool
    unknown: tuple[str, ...]
