"""The analytical model: roofline, latency-bandwidth collectives, mean host overheads. Needs no torch, no checkpoint."""

from gnnperf.analytic.constants import AnalyticConstants, load_constants, save_constants
from gnnperf.analytic.cpu_ops.measured import read_calibrated_calls
from gnnperf.analytic.fit import fit_constants, fit_host_overheads, fit_lags
from gnnperf.analytic.predictor import AnalyticPredictor

__all__ = [
    "AnalyticConstants",
    "AnalyticPredictor",
    "fit_constants",
    "fit_host_overheads",
    "fit_lags",
    "load_constants",
    "read_calibrated_calls",
    "save_constants",
]
