"""What changed between two steps: a waterfall, and bars before and after."""

import numpy as np
import pandas as pd

from gnnperf.predict import StepPrediction
from gnnperf.report.compare.changes import Change, Comparison, compare, leading
from gnnperf.report.compare.side import predicted_side
from gnnperf.report.compare.text import headline, rate_lines, sides, signed, warnings
from gnnperf.report.page import markup
from gnnperf.report.page.ops import OF_TYPE, OTHER
from gnnperf.report.summary import nodes_table
from gnnperf.report.text import time_text

NUM_PARTS = 15
SMALL = 0.5  # changes below this share of a step are drawn without the part of it that stays
HEADS = ("part", "change", "", "A", "B", "all ranks A", "all ranks B")


def waterfall(by: str, changes: tuple[Change, ...], result: Comparison) -> markup.Markup:
    """From step A down to step B, the largest change first; each bar begins where the one before it ended."""
    parts = leading(changes, NUM_PARTS)
    levels_us = np.cumsum([result.a.step_time_us, *(part.change_us for part in parts)])
    low, high = float(levels_us.min()), float(levels_us.max())
    first_us = max(low - (high - low), 0.0) if high - low < SMALL * high else 0.0  # 0 unless that hides the changes
    span_us = high - first_us or 1.0
    at = ((levels_us - first_us) / span_us).tolist()  # [num_parts + 1]
    rows: list[markup.Row] = [
        (markup.text_td(part.name), markup.Td(signed(part.change_us), part.change_us),
         markup.bar(abs(end - begin), "red" if end > begin else "green", min(begin, end)),
         *map(markup.time_td, (part.a_critical_us, part.b_critical_us, part.a_all_ranks_us, part.b_all_ranks_us)))
        for part, begin, end in zip(parts, at, at[1:], strict=False)
    ]  # fmt: skip
    ends: list[markup.Row] = [
        (markup.Td(f"step {letter}"), markup.time_td(us), markup.bar(place, "blue"), *[markup.Td("")] * 4)
        for letter, us, place in (("A", result.a.step_time_us, at[0]), ("B", result.b.step_time_us, at[-1]))
    ]
    cut = markup.note(f"Bars begin at {time_text(first_us)}.") if first_us else ""
    return markup.Markup(cut + markup.table(f"Change by {by}", HEADS, [ends[0], *rows, ends[1]]))


def before_and_after(before: StepPrediction, after: StepPrediction, nodes: pd.DataFrame) -> markup.Markup:
    """Two bars of node types, as long as the steps, and the change by node type; `nodes` are those of `before`."""
    longest = max(before.step_time_us, after.step_time_us) or 1.0
    bars_of_types = [
        f"<p>{name}: <b>{time_text(one.step_time_us)}</b></p>"
        + markup.stack(
            [(n, s, OF_TYPE.get(n, OTHER)) for n, s in one.critical_path_share.items()], one.step_time_us / longest
        )
        for name, one in (("A, unedited", before), ("B, edited", after))
    ]
    result = compare(predicted_side(before, nodes), predicted_side(after, nodes_table(after)))
    return markup.Markup("".join([*bars_of_types, waterfall("node type", result.changes["node type"], result)]))


def comparison_page(result: Comparison) -> str:
    """A comparison as one HTML file that needs no network: headline, what is compared, warnings, waterfalls."""
    lines = [markup.paragraph(line) for line in (*sides(result), *rate_lines(result), *warnings(result))]
    parts = [markup.section(by.replace(" ", "-"), f"By {by}: time on the critical path", waterfall(by, changes, result))
             for by, changes in result.changes.items()]  # fmt: skip
    return markup.page(headline(result), *lines, *parts)
