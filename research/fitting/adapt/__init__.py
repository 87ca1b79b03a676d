"""A few measured steps of one's own, and what they say about other steps: factors on parts of the analytical model."""

from research.fitting.adapt.choose import Adaptation, adapt
from research.fitting.adapt.parts import PARTS, Part, parts_of
from research.fitting.adapt.scaled import ScaledPredictor
from research.fitting.adapt.step_linear_bounds import StepLinearBounds, linear_bounds_of

__all__ = [
    "PARTS",
    "Adaptation",
    "Part",
    "ScaledPredictor",
    "StepLinearBounds",
    "adapt",
    "linear_bounds_of",
    "parts_of",
]
