"""report.html: one file that needs no network, readable without its scripts."""

from gnnperf.report.page.page import html_report

__all__ = ["html_report"]
