"""Costs of calls given by hand, and of what the profiler records of a program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

from gnnperf.graph.cost import OpCost, op_cost


def cost(name: str, dims: list, types: list[str] | None = None, values: list[str] | None = None) -> OpCost:
    def texts(result: list | None) -> str | None:
        return None if result is None else json.dumps(result)

    return op_cost(name, texts(dims), texts(types), texts(values))


def recorded_calls(run: Callable[[], object], tmp_path: Path) -> list[tuple[str, OpCost]]:
    """Cost of every op the profiler records while `run` runs, from the texts it writes."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorder:
        run()
    recorder.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    ops = [e for e in events if e.get("cat") == "cpu_op"]
    keys = ("Input Dims", "Input type", "Concrete Inputs")
    return [(e["name"], op_cost(e["name"], *(json.dumps(e["args"].get(k)) for k in keys))) for e in ops]
