"""From a StepPrediction to what people read: console, JSON, Parquet, Perfetto timeline, HTML."""

from gnnperf.report.console import print_summary
from gnnperf.report.write import check_output, write_report

__all__ = ["check_output", "print_summary", "write_report"]
