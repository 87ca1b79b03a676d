"""Predictions of an op table: as a table, as a document, as text, with errors where the table was measured."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.analytic import MEASURED, Estimate, OpRow
from gnnperf.core import csv_text, untrusted, write_bytes
from gnnperf.gnn import ErrorSummary, summarize
from gnnperf.hardware import DeviceSpec

SUFFIXES = (".parquet", ".csv", ".jsonl")
MOST_SHOWN, OP_WIDTH, SHAPES_WIDTH = 20, 36, 44


@dataclass(frozen=True)
class OpEstimates:
    """An op table with its predictions."""

    table: pd.DataFrame  # as it was read
    rows: tuple[OpRow, ...]  # of the table
    estimates: tuple[Estimate, ...]  # one per row
    device: DeviceSpec  # requested

    @property
    def uncovered(self) -> Mapping[str, int]:
        """Reason -> rows, most first."""
        return dict(Counter(a.reason for a in self.estimates if a.reason is not None).most_common())

    @property
    def compared(self) -> np.ndarray:
        """[n] bool: measured rows whose time is what is predicted: a GPU's own time, an op's whole time on a CPU."""
        own = self.device.kind == "cpu"
        return np.array([r.measured_us is not None and (own or not r.launch_included) for r in self.rows], bool)

    def errors(self) -> ErrorSummary | None:
        """Errors over the rows that can be compared; None without any."""
        if not self.compared.any():
            return None
        pairs = [(a.latency_us, r.measured_us) for a, r in zip(self.estimates, self.rows, strict=True)]
        predicted, measured = np.array(pairs, float).T  # None becomes NaN
        return summarize(predicted[self.compared], measured[self.compared])


def estimate_table(result: OpEstimates) -> pd.DataFrame:
    """The table with latency_us, bound and reason; what it had measured is measured_latency_us."""
    estimates = pd.DataFrame([asdict(estimate) for estimate in result.estimates], index=result.table.index)
    estimates = estimates.astype({"latency_us": "float64", "bound": object, "reason": object})
    table = result.table if MEASURED in result.table.columns else result.table.rename(columns={"latency_us": MEASURED})
    if MEASURED not in table.columns:  # or the predictions would be what a later reading takes for measured
        table = table.assign(**{MEASURED: np.nan})
    retained = table.drop(columns=[name for name in estimates.columns if name in table.columns])
    return pd.concat([retained, estimates], axis=1)


def write_estimates(result: OpEstimates, path: Path) -> None:
    """Write the table by its suffix."""
    table = estimate_table(result)
    with untrusted.reading(path, "cannot be written"):
        if path.suffix == ".parquet":
            write_bytes(path, _flat(table).to_parquet(index=False))
            return
        text = csv_text(_flat(table)) if path.suffix == ".csv" else table.to_json(orient="records", lines=True)
        write_bytes(path, text.encode())


def _flat(table: pd.DataFrame) -> pd.DataFrame:
    """Lists and mappings as JSON text, as `gnnperf calibrate` writes them: their cells have no one type."""
    nested = [name for name in table.columns if table[name].map(lambda v: isinstance(v, list | dict)).any()]
    return table.assign(**{
        name: [json.dumps(v) if isinstance(v, list | dict) else v for v in table[name]] for name in nested
    })  # fmt: skip


def document(result: OpEstimates) -> dict[str, Any]:
    """Everything as JSON: unknown is null."""
    errors = result.errors()
    rows = json.loads(estimate_table(result).to_json(orient="records"))
    return {
        "hardware": result.device.name,
        "num_rows": len(rows),
        "num_answered": _num_covered(result),
        "unanswered": result.uncovered,
        "errors": asdict(errors) if errors is not None and errors.num_nodes else None,
        "rows": rows,
    }


def text(result: OpEstimates) -> str:
    """The first rows, what has no prediction, and the errors."""
    lines = [f"{'op':{OP_WIDTH}} {'shapes':{SHAPES_WIDTH}} {'direction':9} {'latency us':>11}  bound"]
    lines += [_line(row, estimate) for row, estimate in zip(result.rows, result.estimates, strict=True)][:MOST_SHOWN]
    if len(result.rows) > MOST_SHOWN:
        lines.append(f"... {len(result.rows) - MOST_SHOWN:,} more rows; --out FILE or --json has them all")
    lines.append(f"{_num_covered(result):,} of {len(result.rows):,} rows predicted for {result.device.name}")
    lines += [f"  no prediction for {count:,}: {reason}" for reason, count in result.uncovered.items()]
    return "\n".join(lines + _error_lines(result))


def _num_covered(result: OpEstimates) -> int:
    return sum(estimate.latency_us is not None for estimate in result.estimates)


def _line(row: OpRow, estimate: Estimate) -> str:
    shapes = json.dumps(row.shapes, separators=(",", ":"))
    shown = f"{shapes[: SHAPES_WIDTH - 3]}..." if len(shapes) > SHAPES_WIDTH else shapes
    latency, why = (
        ("-", estimate.reason) if estimate.latency_us is None else (f"{estimate.latency_us:.2f}", estimate.bound)
    )
    return f"{row.op[:OP_WIDTH]:{OP_WIDTH}} {shown:{SHAPES_WIDTH}} {row.direction:9} {latency:>11}  {why}"


def _error_lines(result: OpEstimates) -> list[str]:
    measured = sum(row.measured_us is not None for row in result.rows)
    if not measured:
        return []
    left_out = measured - int(result.compared.sum())
    lines = [f"{left_out:,} measured rows are not compared: their times include the launch"] if left_out else []
    errors = result.errors()
    if errors is None or not errors.num_nodes:
        return lines
    named = ("mean_ape", "median_ape", "p90_ape", "max_ape", "bias")
    shown = ", ".join(f"{name.removesuffix('_ape')} {100 * getattr(errors, name):.1f} %" for name in named)
    return [*lines, f"error against {errors.num_nodes:,} measured rows: {shown}"]
