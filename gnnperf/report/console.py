"""The prediction on the terminal."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from gnnperf.core import console
from gnnperf.predict import StepPrediction
from gnnperf.report import text
from gnnperf.report.summary import top_ops
from gnnperf.report.throughput import alternative_heads, alternative_rows, throughput_lines

NUM_NAMES = 2  # first columns of the table of devices, which hold no number
NUM_UNCOVERED = 10  # ops listed by name; prediction.json has all of them


def print_summary(
    prediction: StepPrediction, written: Iterable[Path] = (), onto: Console | None = None, verbose: bool = False
) -> None:
    """Print the first warnings, step time, comparison, shares, top ops, what is not covered and where the files are.

    Args:
        prediction: what was predicted.
        written: paths of the files.
        onto: the console; None: standard output.
        verbose: whether all warnings and notes are printed.
    """
    show(summary(prediction, written, verbose), onto)


def show(drawn: RenderableType, onto: Console | None = None) -> None:
    """Print; into a file or a pipe, a sentence stays one line, so that it can be searched for."""
    onto = onto or console()
    onto.print(drawn, soft_wrap=not onto.is_terminal)


def summary(prediction: StepPrediction, written: Iterable[Path] = (), verbose: bool = False) -> RenderableType:
    """Everything that print_summary shows. Names come from traces, so nothing is read as markup."""
    others = alternative_rows(prediction)
    left, most = text.notes_left(prediction), None if verbose else text.MOST_WARNINGS
    return Group(
        *(Text(f"warning: {one}", style="yellow") for one in prediction.warnings[:most]),
        Text(text.target(prediction), style="dim"),
        *(Text(line, style="dim") for line in text.collectives_lines(prediction)),
        Text(text.headline(prediction), style="bold"),
        Text(f"  {text.MEANING[prediction.step_time_kind]}", style="dim"),
        Text(f"  {text.comparison(prediction)}"),
        *(Text(f"  {line}", style="dim") for line in text.steps_line(prediction)),
        *map(Text, text.profiler_line(prediction)),
        *([_table("the step on other hardware", alternative_heads(prediction), others, NUM_NAMES)] if others else []),
        *(Text(line, style="bold") for line in text.whatif_lines(prediction)),
        *(Text(line) for line in throughput_lines(prediction)),
        *(Text(line) for line in text.memory_lines(prediction)),
        Text(f"share of step time by source: {_shares(prediction.source_share)}"),
        Text(text.coverage(prediction)),
        *(Text(line, style="dim") for line in text.doubts(prediction)),
        Text(f"critical path by node type: {_shares(prediction.critical_path_share)}"),
        Text(f"  {text.path_delays(prediction)}", style="dim"),
        *_findings(prediction),
        _ops_table(prediction),
        *_uncovered(prediction.uncovered_ops),
        *(Text(f"note: {one}", style="dim") for one in prediction.notes if verbose),
        *([Text(left, style="dim")] if left and not verbose else []),
        *(Text(f"wrote {path}", style="green") for path in written),
    )


def _shares(share: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {text.share_text(value)}" for name, value in share.items())


def _ops_table(prediction: StepPrediction) -> Table:
    ops = top_ops(prediction)
    times = ops[["critical_us", "predicted_us", "measured_us"]].map(text.time_text).to_numpy()
    rows = [(name, kind, f"{count:,}", *us) for name, kind, count, us
            in zip(ops["op_name"], ops["node_type"], ops["num_nodes"], times, strict=True)]  # fmt: skip
    heads = ("op", "type", "nodes", "on critical path", "predicted, all ranks", "measured, all ranks")
    return _table("top ten ops; time on the critical path includes delays after them", heads, rows, 2)


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], num_names: int) -> Table:
    """Without lines; the first `num_names` columns hold no number."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < num_names else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _findings(prediction: StepPrediction) -> list[Text]:
    """What holds the step up; nothing where no one requested."""
    if prediction.findings is None:
        return []
    if not prediction.findings:
        return [Text("no rule finds anything that holds the step up")]
    lines = []
    for result in prediction.findings:
        lines.append(Text(f"finding: {text.finding_head(result)}", style="bold"))
        lines += [Text(f"  {line}", style="dim") for line in text.finding_details(result)]
    return lines


def _uncovered(ops: dict[str, int]) -> list[Text]:
    if not ops:
        return [Text("every op is covered")]
    first = ", ".join(f"{name} ({count})" for name, count in list(ops.items())[:NUM_UNCOVERED])
    more = f" and {len(ops) - NUM_UNCOVERED} more ops" if len(ops) > NUM_UNCOVERED else ""
    return [Text(f"not covered: {first}{more}", style="yellow")]
