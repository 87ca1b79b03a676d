"""A comparison as one HTML file that needs no network: a waterfall per way of adding up."""

from __future__ import annotations

from gnnperf.report.compare.changes import Comparison
from gnnperf.report.compare.text import headline, rate_lines, sides, warnings
from gnnperf.report.page.changes import waterfall
from gnnperf.report.page.markup import page, paragraph, section


def comparison_page(result: Comparison) -> str:
    """The whole page: headline, what is compared, warnings, waterfalls."""
    lines = [paragraph(line) for line in (*sides(result), *rate_lines(result), *warnings(result))]
    parts = [section(by.replace(" ", "-"), f"By {by}: time on the critical path", waterfall(by, changes, result))
             for by, changes in result.changes.items()]  # fmt: skip
    return page(headline(result), *lines, *parts)
