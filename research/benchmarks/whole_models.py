"""Whole models that others measured: every row of NeuSight, next to what its authors and others predicted for it.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks whole_models [--checkpoint FILE] [--seen] [--classes]
    ... whole_models --nodes        forward passes of nodes only; --gaps: fit what events add to them, and print it

A list of operators becomes a graph (research.listed); a predictor and the schedule give the step: the analytical model
with the constants that ship, or the network of a checkpoint next to it. Nothing is fitted on these rows. Peers are
NeuSight, roofline, Habitat and Li et al., as NeuSight's authors published their predictions; the floor is the measured
times of the nodes, summed.

--seen: only GPUs whose op tables constants and peers were fitted on; no label of another GPU is opened.
--classes: next to, kernels by class on the node tables: products, elementwise, softmax, layer norm.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table

from gnnperf.analytic import AnalyticPredictor, default_constants
from gnnperf.analytic.kernels.dispatch import kernel_times
from gnnperf.analytic.kernels.nodes import distinct_calls
from gnnperf.analytic.memory_bound.constants import EventGap
from gnnperf.generate import Op, Parallelism
from gnnperf.gnn import summarize
from gnnperf.graph import ExecutionGraph, Prediction, Predictor
from gnnperf.hardware import ClusterSpec, DeviceSpec, default_cluster, match_device
from gnnperf.predict import Mode
from gnnperf.predict.api import models_for
from gnnperf.schedule import schedule, schedule_with_contention
from research.benchmarks._frame import ERROR_COLUMNS, error_texts, parser_of, run_main, show
from research.benchmarks._public_runs import mirror
from research.benchmarks._results import save_result
from research.fitting.logs import fit_logs, softened
from research.listed import Owned, Part, Section, build_listed, listed_program, sections
from research.listed.operator_list import ListedOp, read_operator_list
from research.tables import model_labels as labels
from research.tables.observation import NODE_GAPS, between_events_us

# As NeuSight divided them: it trained on these, and so did every constant of gnnperf that float32 without TF32 uses.
SEEN = ("Tesla P4", "Tesla P100-PCIE-16GB", "Tesla V100-PCIE-32GB", "Tesla T4", "NVIDIA A100-PCIE-40GB")
WAYS = {"dp4": Parallelism(data=4), "tp4": Parallelism(tensor=4), "pp4_1": Parallelism()}
FUSED = "fusion"


@dataclass(frozen=True)
class Row:
    """One measured model on one GPU, or on four."""

    label: labels.ModelLabel
    device: DeviceSpec
    layers: int
    ops: tuple[ListedOp, ...] = field(repr=False)

    @property
    def seen(self) -> bool:
        """Whether constants and peers were fitted on op tables of that GPU."""
        return self.label.device in SEEN

    @property
    def part(self) -> Part:
        """The passes that were measured."""
        return Part.BOTH if self.label.run.training else Part.FORWARD

    @property
    def cluster(self) -> ClusterSpec:
        """The shipped machine with that GPU."""
        return default_cluster(self.device)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """Of its list."""
        return sections(self.ops, self.layers, self.label.run.training)

    def graph(self, part: Part) -> ExecutionGraph:
        """The passes as a graph.

        One micro-batch on a pipeline (pp4_1) keeps one stage busy at a time: the stages follow each other as on one
        GPU, and what is sent between them is left out.
        """
        run = self.label.run
        ways = WAYS.get(run.variant)
        return build_listed(run.name, self.ops, self.layers, part, run.training, ways)

    def program(self, part: Part) -> tuple[Owned, ...]:
        """What the graph is made of, with the nodes of the list."""
        return listed_program(self.sections, part)

    def summed_nodes_us(self, mirror: Path) -> float:
        """The floor: measured times of the nodes, each as often as the model has it; NaN: not measured."""
        times = labels.node_times(mirror, self.label)
        if times is None:
            return float("nan")
        return float(sum(times.sum(axis=1).reindex(names(s)).sum() * s.repeats for s in self.sections))


def names(section: Section) -> list[str]:
    """Of its nodes."""
    return [call.op.name for call in section.calls]


def rows(mirror: Path) -> tuple[list[Row], Counter[str]]:
    """Rows that have a list of operators and a GPU of the catalog; and how many were left out, by reason."""
    result, left_out = [], Counter[str]()
    for label in labels.read_model_labels(mirror):
        device, path = match_device(label.device), labels.operator_list_path(mirror, label.run)
        if label.run.variant == FUSED:
            left_out["torch.compile (fusion): no list of the kernels that it makes"] += 1
        elif device is None:
            left_out[f"{label.device}: not in the catalog"] += 1
        elif not path.is_file():
            left_out["no list of operators in the mirror"] += 1
        else:
            result.append(Row(label, device, labels.layers_of(mirror, label.run.model), read_operator_list(path)))
    return result, left_out


def makespan_us(result: Prediction) -> float:
    """From the first host segment to the end of all work; NaN if an op has no prediction: it is never taken as 0."""
    if result.uncovered_ops:
        return float("nan")
    if result.isolated is None:
        return float(schedule(result.graph, result.scheduled_us, result.lag_us).makespan_us)
    together = schedule_with_contention(result.graph, result.scheduled_us, result.lag_us, result.isolated)
    return float(together.schedule.makespan_us)


def kernels_us(row: Row, predictor: Predictor) -> pd.DataFrame:
    """[num_nodes] forward_us and backward_us by name of the list: the node's kernels, once.

    Nodes were measured in loops, so that the cache holds their operands; the analytical model predicts that.
    """
    graph = row.graph(row.part)
    compute = (graph.nodes["node_type"] == "compute").to_numpy()
    owned = [each for each in row.program(row.part) if isinstance(each.item, Op)]
    backward = (graph.nodes["phase"].astype(str) == "backward").to_numpy()[compute]
    if isinstance(predictor, AnalyticPredictor):
        us = repeated_us(graph.nodes[compute], row.device)  # [num_ops]; NaN stays NaN in the sums
    else:
        us = predictor.predict(graph, row.cluster).latency_us[compute]
    nodes = pd.Index([each.node for each in owned], name="node")
    table = pd.DataFrame({"forward_us": us * ~backward, "backward_us": us * backward}, index=nodes)
    total = table.fillna(np.inf).groupby("node").sum().replace(np.inf, np.nan)  # unknown parts leave no sum
    often = {name: s.repeats for s in row.sections for name in names(s)}
    return total.div(total.index.map(often).to_numpy(float), axis=0)


def repeated_us(nodes: pd.DataFrame, device: DeviceSpec) -> np.ndarray:
    """[n] us of compute nodes, each called in a loop."""
    calls, code = distinct_calls(nodes)
    times = kernel_times([replace(call, turns=1.0) for call in calls], device, default_constants().roofline_power)
    return times.latency_us[code] / np.maximum(nodes["num_siblings"].to_numpy(float), 1.0)


NEUSIGHT, GAP_SCALE = "neusight", 0.1  # GAP_SCALE: of a log latency, larger misses count linearly
CLASSES = {"BMM": "bmm", "Linear": "linear", "VECsoftmax": "softmax", "VECln": "layer norm"}
ELEMENTWISE = "elementwise"  # VECadd, VECmulu, VECgelu, ...
MEASURED, PEER = "measured", "NeuSight"


def class_of(kind: str) -> str | None:
    """The class of a kind of node; None: none that NeuSight reports."""
    return CLASSES.get(kind) or (ELEMENTWISE if kind.startswith("VEC") else None)


def class_sums(row: Row, who: Mapping[str, Predictor], folder: Path) -> pd.DataFrame | None:
    """[num_classes] us of all nodes of a class, forward and backward, by each predictor; None: not measured."""
    measured, peer = labels.node_times(folder, row.label), labels.peer_node_times(folder, row.label, NEUSIGHT)
    if measured is None or peer is None:
        return None
    nodes = [(call.op.name, class_of(call.op.kind), s.repeats) for s in row.sections for call in s.calls]
    retained = pd.DataFrame([n for n in nodes if n[1]], columns=["node", "class", "repeats"])
    tables = {MEASURED: measured, PEER: peer, **{name: kernels_us(row, each) for name, each in who.items()}}
    kinds = {call.op.name: call.op.kind for s in row.sections for call in s.calls}
    for name in who:
        tables[name] = between_events(tables[name], kinds)
    for name, table in tables.items():
        retained[name] = table.sum(axis=1).reindex(retained["node"]).to_numpy(float) * retained["repeats"]
    return retained.groupby("class")[list(tables)].sum(min_count=1)


def between_events(kernels: pd.DataFrame, kinds: Mapping[str, str]) -> pd.DataFrame:
    """[num_nodes] what two events around a node's pass read, from its kernels: the host's gap is in what is short."""
    result = kernels.copy()
    for node in kernels.index:
        gap = NODE_GAPS.get(class_of(kinds[str(node)]) or "")
        if gap is not None:
            own_us = kernels.loc[node].to_numpy(float)  # [2] forward and backward; 0: no kernel, no measurement
            result.loc[node] = np.where(own_us == 0.0, 0.0, between_events_us(own_us, gap))
    return result


def class_table(chosen: Sequence[Row], who: Mapping[str, Predictor], folder: Path) -> Table:
    """Errors of the sums, by GPU and class."""
    sums = [result.assign(GPU=row.label.device) for row in chosen
            if (result := class_sums(row, who, folder)) is not None]  # fmt: skip
    return errors_table(pd.concat(sums).reset_index() if sums else pd.DataFrame(columns=["GPU", "class"]), (*who, PEER))


def errors_table(us: pd.DataFrame, who: Iterable[str]) -> Table:
    """Errors of each predictor by GPU and class."""
    printed = Table("GPU", "class", "predictor", *ERROR_COLUMNS)
    for (gpu, kind), part in us.groupby(["GPU", "class"]):
        for name in who:
            printed.add_row(str(gpu), str(kind), name, *error_texts(part[name], part[MEASURED]))
        printed.add_section()
    return printed


def forward_nodes(chosen: Sequence[Row], folder: Path) -> pd.DataFrame:
    """One row per node of a class: GPU, class, kernels (us, in a loop), analytical, measured, NeuSight's."""
    result = []
    for row in chosen:
        measured, peer = labels.node_times(folder, row.label), labels.peer_node_times(folder, row.label, NEUSIGHT)
        if measured is None or peer is None or row.label.run.variant:
            continue
        kinds = {call.op.name: call.op.kind for s in row.sections for call in s.calls}
        kernels = kernels_us(row, AnalyticPredictor())
        table = pd.DataFrame({
            "kernels": kernels["forward_us"], ANALYTIC: between_events(kernels, kinds)["forward_us"],
            MEASURED: measured["forward_us"], PEER: peer["forward_us"],
        }).dropna()  # fmt: skip
        table["GPU"] = row.label.device
        table["class"] = [class_of(kinds.get(str(node), "")) for node in table.index]
        result.append(table)
    nodes = pd.concat(result, ignore_index=True).dropna(subset=["class"])
    return nodes[(nodes[MEASURED] > 0) & (nodes["kernels"] > 0)]


def fitted_gap(part: pd.DataFrame) -> EventGap:
    """What events add to the nodes of one class; every GPU counts the same."""
    log_us, kernels = np.log(part[MEASURED].to_numpy()), part["kernels"].to_numpy()
    weight = np.sqrt(1.0 / part.groupby("GPU")[MEASURED].transform("size").to_numpy())

    def residuals(values: np.ndarray) -> np.ndarray:
        gap = EventGap(float(values[0]), float(values[1] / (1.0 + values[1])))
        return softened(np.log(between_events_us(kernels, gap)) - log_us, GAP_SCALE) * weight * np.sqrt(len(part))

    call, odds = fit_logs(residuals, np.array([30.0, 0.5]))
    return EventGap(float(call), float(odds / (1.0 + odds)))


ANALYTIC, NETWORK, FLOOR = "analytical", "network", "nodes summed"
CLAIMED = ("A100 80GB", "NVIDIA L4")  # GPUs of the claim
UNSEEN, TRAINED, AMD = "unseen GPUs", "GPUs of the op tables", "AMD, whose nodes gave constants"


def predicted_rows(requested: Sequence[Row], who: Mapping[str, Predictor], folder: Path) -> pd.DataFrame:
    """[num_rows] what was run, measured and predicted, us."""
    result = []
    for row in requested:
        label = row.label
        given = {name: predictor.predict(row.graph(row.part), row.cluster) for name, predictor in who.items()}
        for name, each in given.items():
            if ops := ", ".join(each.uncovered_ops):
                print(f"{name} has no prediction for {label.run.name}: {ops}", file=sys.stderr)
        result.append({
            "GPU": label.device, "run": label.run.name, "model": label.run.model, "variant": label.run.variant,
            "pass": "train" if label.run.training else "inference", "seen": row.seen, "measured": label.total_us,
            **{name: makespan_us(each) for name, each in given.items()},
            **{name: labels.peer_us(folder, label, peer) for peer, name in labels.PEERS.items()},
            FLOOR: row.summed_nodes_us(folder),
        })  # fmt: skip
    return pd.DataFrame(result)


def print_summary(title: str, groups: Iterable[tuple[str, pd.DataFrame]], who: Sequence[str]) -> None:
    """Errors of each predictor over groups of rows; a row without its prediction is missing in its line only."""
    printed = Table("rows of", "predictor", *ERROR_COLUMNS)
    for name, part in groups:
        for answer_name in who:
            if part[answer_name].notna().any():
                printed.add_row(name, answer_name, *error_texts(part[answer_name], part["measured"]))
        printed.add_section()
    _show(title, printed)


def _groups(by: Iterable[tuple[object, pd.DataFrame]]) -> list[tuple[str, pd.DataFrame]]:
    return [(" ".join(map(str, key)) if isinstance(key, tuple) else str(key), part) for key, part in by]


def _show(title: str, printed: Table) -> None:
    print(f"\n{title}\n")
    show(printed, width=170)


def main(argv: Sequence[str]) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--checkpoint", type=Path, help="a trained network, compared with the analytical model")
    parser.add_argument("--seen", action="store_true", help="only GPUs whose op tables constants were fitted on")
    parser.add_argument("--classes", action="store_true", help="kernels by class on the node tables, too")
    parser.add_argument("--nodes", action="store_true", help="forward passes of nodes only")
    parser.add_argument("--gaps", action="store_true", help="fit NODE_GAPS on the nodes of --seen GPUs, and print them")
    requested = parser.parse_args(argv)
    folder = mirror()
    chosen, left_out = rows(folder)
    who: dict[str, Predictor] = {ANALYTIC: AnalyticPredictor()}
    if requested.checkpoint is not None:
        who[NETWORK] = models_for(Mode.hybrid, requested.checkpoint).model
    for reason, count in sorted(left_out.items()):
        print(f"left out: {count} rows: {reason}")
    chosen = [row for row in chosen if row.seen or not requested.seen]
    if not chosen:
        sys.exit("no labels of sitar-lab/NeuSight: set GNNPERF_DATA_MIRROR to a folder that holds them")
    if requested.nodes or requested.gaps:
        nodes = forward_nodes([row for row in chosen if row.seen or not requested.gaps], folder)
        if requested.nodes:
            _show("Forward passes of nodes", errors_table(nodes, (ANALYTIC, PEER)))
        for kind, part in nodes.groupby("class") if requested.gaps else ():
            print(kind, fitted_gap(part))
        return
    result = predicted_rows(chosen, who, folder)
    every = (*who, *labels.PEERS.values(), FLOOR)
    one = result[result["variant"] == ""]
    if not requested.seen:
        save_result("whole_models", *(
            100 * summarize(part[ANALYTIC].to_numpy(float), part["measured"].to_numpy(float)).mean_ape
            for part in (one[one["GPU"].str.contains(name)] for name in CLAIMED)
        ))  # fmt: skip
    seen = one["seen"].map({True: TRAINED, False: UNSEEN}).mask(one["GPU"].str.startswith("AMD"), AMD)
    for title, keys in (("how the GPU was known", [seen]), ("GPU", ["GPU"]), ("model and pass", ["model", "pass"])):
        print_summary(f"One GPU, by {title}", _groups(one.groupby(keys)), every)
    if len(several := result[result["variant"] != ""]):
        groups = _groups(several.groupby(["variant"]))
        print_summary("Four GPUs, by how they share the work", groups, every)
    if requested.classes:
        _show("Kernels by class, summed over a model; measured between events of their own",
              class_table([row for row in chosen if not row.label.run.variant], who, folder))  # fmt: skip


if __name__ == "__main__":
    run_main(main)
