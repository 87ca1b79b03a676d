"""Kernels of public GPU traces: closed forms next to the plain roofline and trivial predictions.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks trace_kernels
    ... trace_kernels --coverage        share of kernel time with a modeled latency, all GPU recordings

Every op call with device time, all its kernels together. Only constants of AMD's GPUs were fitted on these traces
(`research.fitting.cdna`). "op, other runs" is the trivial baseline: the median time of calls of that name in all other
recordings. Errors are over calls; "total" is the error of a GPU's device time.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
import pandas as pd
from rich.table import Table

from gnnperf.analytic import default_constants
from gnnperf.analytic.kernels.dispatch import kernel_times, roofline_us
from gnnperf.analytic.kernels.nodes import compute_nodes_us, distinct_calls
from gnnperf.core import InputError, NodeType
from gnnperf.gnn import summarize
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import match_device
from gnnperf.predict.target import choose_target
from gnnperf.trace import RunTrace
from gnnperf.trace.public.catalog import load_catalog
from research.benchmarks._frame import parser_of, run_main, show
from research.benchmarks._public_runs import Recording, imported, recordings
from research.benchmarks.trace_evidence import gpu_recordings as every_recording

FORM, ROOFLINE, OTHER_RUNS = "form", "roofline", "op, other runs"
ANSWERS = (FORM, ROOFLINE, OTHER_RUNS)
MOST_NODES = 20_000  # of one run
MOST_RECORDINGS = 6  # of one project on one GPU: one project published 35 of one program
CALL = ["gpu", "project", "run", "rank", "owner"]


def gpu_recordings() -> Iterator[Recording]:
    """Kineto recordings with shapes, on a GPU that the catalog of files names."""
    counted: dict[tuple[str, str | None], int] = {}
    for recording in recordings([e for e in load_catalog() if e.run]):
        traces = [e for e in recording.entries if e.kind in ("kineto", "archive") and e.gpu]
        if not traces or not any(e.with_shapes == "yes" for e in recording.entries):
            continue
        key = traces[0].repo, traces[0].gpu
        counted[key] = counted.get(key, 0) + 1
        if counted[key] <= MOST_RECORDINGS:
            yield recording


def measured_calls() -> pd.DataFrame:
    """One row per op call of every recording: measured us, and every prediction."""
    result = [_calls(recording, *imported(recording)) for recording in gpu_recordings()]
    calls = pd.concat([f for f in result if len(f)], ignore_index=True)
    calls[OTHER_RUNS] = median_of_others(calls["measured_us"], calls["op_name"], calls["run"])
    return calls.assign(share=calls["measured_us"] / calls.groupby("gpu")["measured_us"].transform("sum"))


def _calls(recording: Recording, run: RunTrace, graph: ExecutionGraph) -> pd.DataFrame:
    nodes = graph.nodes[(graph.nodes["node_type"] == NodeType.COMPUTE) & (graph.nodes["stream"] >= 0)][:MOST_NODES]
    device = match_device(graph.device_names[0])
    if device is None or nodes.empty:
        return pd.DataFrame()
    calls, code = distinct_calls(nodes)
    power = default_constants().roofline_power
    times = kernel_times(calls, device, power)
    kernels = np.array([call.num_kernels for call in calls], float)
    plain = roofline_us(calls, device, power) + (kernels - 1) * device.launch_floor_us
    rows = pd.DataFrame({
        "gpu": device.name, "project": recording.entries[0].repo, "run": recording.name,
        "rank": nodes["rank"].to_numpy(), "owner": _owners(run, graph, nodes),
        "op_name": nodes["op_name"].astype(object).to_numpy(), "family": nodes["family"].astype(object).to_numpy(),
        "by_form": times.by_form[code], "measured_us": nodes["latency_us"].to_numpy(float),
        FORM: (times.latency_us / kernels)[code], ROOFLINE: (plain / kernels)[code],
    })  # fmt: skip
    summed = {name: (name, lambda v: v.sum(skipna=False)) for name in ("measured_us", FORM, ROOFLINE)}
    whole = rows.groupby(CALL, sort=False).agg(
        op_name=("op_name", "first"), family=("family", "first"), by_form=("by_form", "first"), **summed
    )
    return whole.reset_index()


def _owners(run: RunTrace, graph: ExecutionGraph, nodes: pd.DataFrame) -> np.ndarray:
    """[n] the event of the op call behind each kernel; a number of its own where there is none."""
    place = {rank: i for i, rank in enumerate(graph.ranks)}
    ops = [table.events["op_event"].to_numpy() for table in run.tables]
    result = np.array([ops[place[r]][e] for r, e in zip(nodes["rank"], nodes["event_id"], strict=True)])
    return np.where(result >= 0, result, -1 - np.arange(len(nodes)))


def median_of_others(values: pd.Series, kind: pd.Series, source: pd.Series) -> np.ndarray:
    """[n] the median value of a row's kind over rows of other sources; NaN: it is in no other."""
    result = np.full(len(values), np.nan)
    for rows in kind.groupby(kind).groups.values():
        for name in source[rows].unique():
            own = (source[rows] == name).to_numpy()
            result[rows[own]] = values[rows[~own]].median()
    return result


LEAST_SHARE = 0.003  # of a GPU's device time: families below are in the sums only


def lines(part: pd.DataFrame) -> list[tuple[str, ...]]:
    """One line per predictor: calls covered, then the errors in %."""
    result = []
    for estimate in ANSWERS:
        errors = summarize(part[estimate].to_numpy(float), part["measured_us"].to_numpy(float))
        if errors.num_nodes:
            shown = (errors.mean_ape, errors.median_ape, errors.p90_ape, errors.max_ape, errors.bias, errors.total_bias)
            result.append((estimate, f"{errors.num_nodes:,}", *(f"{100 * x:.0f}" for x in shown)))
    return result


def print_groups(calls: pd.DataFrame, *by: str) -> None:
    """One block per GPU, or per GPU and family: shares of the device time, then errors of the calls with a bound."""
    printed = Table(*by, "device time", "by form", "uncovered", "predictor", "calls", "mean %", "median %", "p90 %",
                    "max %", "bias %", "total %")  # fmt: skip
    for names, part in calls.groupby(list(by)):
        whole = part["share"].sum()
        if whole < LEAST_SHARE:
            continue
        shares = (part.loc[mask, "share"].sum() / whole for mask in (part["by_form"], part[ROOFLINE].isna()))
        head = (*map(str, names), f"{whole:.1%}", *(f"{share:.0%}" for share in shares))  # fmt: skip
        for row, line in enumerate(lines(part[part[ROOFLINE].notna()]) or [("none",)]):
            printed.add_row(*(head if row == 0 else [""] * len(head)), *line)
    show(printed, width=150)


def print_summary(calls: pd.DataFrame) -> None:
    """Per family, the mean over GPUs of the mean errors, where forms apply."""
    formed = calls[calls["by_form"]]
    known = int(calls[ROOFLINE].notna().sum())
    print(f"{len(calls):,} op calls of {calls['run'].nunique()} recordings on {calls['gpu'].nunique()} GPUs: "
          f"{known:,} covered, {len(formed):,} of them by a closed form")  # fmt: skip
    for family, part in formed.groupby("family"):
        means = {a: [summarize(p[a].to_numpy(float), p["measured_us"].to_numpy(float)) for _, p in part.groupby("gpu")]
                 for a in ANSWERS}  # fmt: skip
        text = ", ".join(f"{a} {100 * np.nanmean([e.mean_ape for e in errors]):.0f} / "
                         f"{100 * np.nanmean([e.median_ape for e in errors]):.0f} %" for a, errors in means.items()
                         if not all(np.isnan(e.mean_ape) for e in errors))  # fmt: skip
        print(f"{family:12s} {len(part):6,} calls, {part['gpu'].nunique()} GPUs; mean / median error: {text}")


def modeled_kernels() -> pd.DataFrame:
    """One row per kernel of all GPU recordings, shapes or not: measured, modeled by shapes, modeled with launches."""
    parts = []
    for name, graph in every_recording():
        try:
            device = choose_target(graph, None, None).cluster.device
        except InputError as error:  # no GPU of the catalog
            print(f"left out: {name}: {error.what}", file=sys.stderr)
            continue
        nodes = graph.nodes[((graph.nodes["node_type"] == NodeType.COMPUTE) & (graph.nodes["stream"] >= 0)).to_numpy()]
        power = default_constants(device.kind).roofline_power
        # Kernels without namespaces and arguments; batched gemms apart.
        bare = nodes["event_name"].astype(str)
        bare = bare.str.replace(r"void |at::native::|\(anonymous namespace\)::", "", regex=True)
        kind = bare.str.extract(r"^(?:volta_|ampere_)?([\w:]*)")[0]
        batched = nodes["op_name"].astype(str).str.contains("bmm", case=False).map({True: "batched ", False: ""})
        parts.append(pd.DataFrame({
            "project": name.split("-")[0].split("/")[0], "run": name,
            "family": nodes["family"].astype(object).to_numpy(), "kernel": (batched + kind).to_numpy(),
            "threads": threads(nodes), "measured_us": nodes["latency_us"].to_numpy(float),
            "by shapes": compute_nodes_us(nodes.drop(columns="grid"), device, power),
            FORM: compute_nodes_us(nodes, device, power),
        }))  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def threads(nodes: pd.DataFrame) -> np.ndarray:
    """[n] threads of the launch; NaN not recorded."""
    launches = (nodes[name].astype(object).tolist() for name in ("grid", "block"))
    return np.array([prod(json.loads(g) + json.loads(b)) if isinstance(g, str) and isinstance(b, str) else np.nan
                     for g, b in zip(*launches, strict=True)])  # fmt: skip


def print_coverage(kernels: pd.DataFrame) -> None:
    """Shares of measured time with a modeled latency; errors of what launches add."""
    printed = Table("", "ms", "modeled by shapes", "with launches", "of these: mean |log error|, by time (signed)",
                    "total", "per thread, other projects")  # fmt: skip
    kernels = kernels[kernels["measured_us"] > 0].reset_index(drop=True)
    per_thread = kernels["measured_us"] / kernels["threads"]
    others = median_of_others(per_thread, kernels["kernel"], kernels["project"])  # NaN: in no other project
    kernels["per thread"] = others * kernels["threads"].to_numpy()
    kinds = kernels["kernel"].str.extract(r"(CatArray|batched (?=.*sgemm)|sgemm)")[0].str.strip()
    groups = [("all", kernels), *kernels.groupby("family"), *kernels.groupby("project"),
              *kernels.groupby(kinds + " " + kernels["project"])]  # fmt: skip
    for name, part in groups:
        us, added = part["measured_us"], part[part["by shapes"].isna() & part[FORM].notna()]
        shares = (us[part[column].notna()].sum() / us.sum() for column in ("by shapes", FORM))
        errors = ("", "", "")
        if len(added):
            total = added[FORM].sum() / added["measured_us"].sum()
            errors = (_log_error(added, FORM), f"{total:.2f}", _log_error(added, "per thread"))
        printed.add_row(str(name), f"{us.sum() / 1e3:,.0f}", *(f"{share:.1%}" for share in shares), *errors)
    show(printed, width=150)
    for column in ("by shapes", FORM):
        modeled_us = kernels["measured_us"].where(kernels[column].notna(), 0.0)
        share = modeled_us.groupby(kernels["run"]).sum() / kernels.groupby("run")["measured_us"].sum()
        print(f"mean over {len(share)} recordings, {column}: {share.mean():.1%}")


def _log_error(kernels: pd.DataFrame, column: str) -> str:
    known = kernels[kernels[column].notna()]
    shares = known["measured_us"] / known["measured_us"].sum()
    logs = (known[column] / known["measured_us"]).map(np.log)
    return f"{(logs.abs() * shares).sum():.2f} ({(logs * shares).sum():+.2f})"


def main(arguments: Sequence[str]) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--coverage", action="store_true", help="share of kernel time with a modeled latency")
    if parser.parse_args(arguments).coverage:
        print_coverage(modeled_kernels())
        return
    calls = measured_calls()
    print_groups(calls, "gpu", "family")
    print_groups(calls, "gpu")
    print_summary(calls)


if __name__ == "__main__":
    run_main(main)
