"""A few measured steps of one's own, and what they say about other steps: factors on parts of the analytical model."""

from gnnperf.analytic.adapt.choose import Adaptation, adapt
from gnnperf.analytic.adapt.parts import PARTS, Part, parts_of
from gnnperf.analytic.adapt.scaled import ScaledPredictor
from gnnperf.analytic.adapt.step_planes import StepPlanes, planes_of

__all__ = ["PARTS", "Adaptation", "Part", "ScaledPredictor", "StepPlanes", "adapt", "parts_of", "planes_of"]
