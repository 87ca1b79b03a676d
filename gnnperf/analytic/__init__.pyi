from .constants import AnalyticConstants as AnalyticConstants
from .constants import load_constants as load_constants
from .constants import save_constants as save_constants
from .cpu.measured import read_calibrated_calls as read_calibrated_calls
from .fit import fit_constants as fit_constants
from .fit import fit_host_overheads as fit_host_overheads
from .fit import fit_lags as fit_lags
from .predictor import AnalyticPredictor as AnalyticPredictor
