from .config import Mode as Mode
from .config import PredictConfig as PredictConfig
from .step_prediction import StepPrediction as StepPrediction
