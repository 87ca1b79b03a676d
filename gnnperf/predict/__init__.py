"""From a trace to one step's answer: predictors, the ladder among them, and the step time they make."""

from gnnperf.predict.config import Mode, PredictConfig
from gnnperf.predict.step_prediction import StepPrediction

__all__ = ["Mode", "PredictConfig", "StepPrediction"]
