"""Public runs on GPUs by workload family, one family left out at a time.

Families follow the catalog, and where its entry is short the ops of the trace: `torchrec/log/resnet18`
is called a residual network and runs TorchRec's look-ups without a convolution; HTA's samples are two ranking models
with tables, a dense network that reduces each gradient by itself, and two convolutional ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.core import InputError, NodeType
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.data.runs import RunGraph, cluster_for, typical
from gnnperf.gnn.data.splits import Split
from gnnperf.gnn.data.step_time import IsolatedPrediction, contended_step_time_us, filled_us, in_place_us
from gnnperf.gnn.evaluation.metrics import is_measured
from gnnperf.graph import ExecutionGraph
from gnnperf.predict.assembly import WINDOW_NAME
from gnnperf.trace.public.catalog import load_catalog
from research.benchmarks._public_runs import Recording, imported, recordings


@dataclass(frozen=True)
class OwnScale:
    """The base, nodes of some types scaled to the speed of the evaluated recording.

    Attributes:
        groups: of node types; each group has one factor.
    """

    groups: tuple[tuple[NodeType, ...], ...]

    def fit(self, data: PreparedData, seed: int) -> OwnScale:
        """Nothing to fit."""
        return self

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes] next to other work."""
        result_us = self.isolated_us(step)
        return in_place_us(step, IsolatedPrediction(result_us, result_us))

    def step_us(self, step: Step) -> float:
        """Scheduled, with contention."""
        return contended_step_time_us(step, self.isolated_us(step))

    def isolated_us(self, step: Step) -> np.ndarray:
        """[num_nodes] the base, each group as long in all as was measured."""
        result_us = filled_us(step, np.full(len(step.nodes), np.nan))
        measured_us = step.nodes["latency_us"].to_numpy(np.float64)
        for group in self.groups:
            own = step.nodes["node_type"].isin(group).to_numpy()
            known = own & is_measured(measured_us) & (result_us > 0)
            if known.any():
                result_us[own] *= measured_us[known].sum() / result_us[known].sum()
        return result_us


# in this order: each validates on the next one, the last on the first
FAMILIES: Mapping[str, tuple[str, ...]] = {  # family -> how names of its recordings begin
    "torchrec": ("torchrec-",),
    "residual": ("kineto-resnet50-", "DeepView.Profile-", "hta-ns_resolution_trace", "hta-nccl_parser_config",
                 "tracelens-mi300-resnet_act_checkpoint"),
    "dlrm-8": ("dlrm-8",),
    "transformer-inference": ("tracelens-h100-", "tracelens-mi300-Falconsai", "tracelens-mi300-Qwen"),
    "megatron": ("megatron-tp2",),
    "particle": ("particle-",),
    "ranking": ("hta-trace_diff-control", "hta-negative_queue_length_values_check"),
    "switch": ("switch-",),
    "dense-reduced": ("hta-df_index_resolver",),
}  # fmt: skip
ONE_PASS = ("particle", "switch")  # without step marks: the whole window is one forward pass (catalog)
# one rank sleeps for a second in each step, as these captures are named after: nothing known before a run contains it
ASLEEP = ("torchrec-trace-sst_long_a2a_optimizer", "torchrec-trace-sst_sleep_pl_dense_after_backward_2")


@dataclass(frozen=True)
class PublicRuns:
    """What can be trained and judged on."""

    graphs: Mapping[str, RunGraph]
    family: Mapping[str, str]
    asleep: tuple[str, ...]
    left_out: tuple[str, ...]

    def of(self, family: str) -> tuple[str, ...]:
        """Names of a family's recordings, without those asleep."""
        return tuple(name for name, own in self.family.items() if own == family and name not in self.asleep)

    def split(self, family: str) -> Split:
        """The family is judged, the next one validates, all others train."""
        names = [name for name in FAMILIES if self.of(name)]
        if family not in names:
            raise InputError("no recording can be read", where=f"family {family}", allowed=", ".join(names) or "none",
                             remedy="`gnnperf data fetch`, or GNNPERF_DATA_MIRROR=FOLDER")  # fmt: skip
        after = names[(names.index(family) + 1) % len(names)]
        train = [run for name in names if name not in (family, after) for run in self.of(name)]
        asleep = tuple(run for run in self.asleep if self.family[run] == family)
        return Split(family, tuple(train), self.of(after), (*self.of(family), *asleep))


def family_of(name: str) -> str | None:
    """Of a recording; None: of no family."""
    return next((family for family, begins in FAMILIES.items() if name.startswith(begins)), None)


def public_runs() -> PublicRuns:
    """All recordings of the families that can be read, have device work and whole steps."""
    graphs: dict[str, RunGraph] = {}
    family: dict[str, str] = {}
    asleep: list[str] = []
    left_out: list[str] = []
    seen: dict[str, list[str]] = {}  # program -> its recordings
    for recording, own in _named():
        try:
            run = _usable(recording, own)
        except InputError as error:
            left_out.append(f"{recording.name}: {error}")
            continue
        repeats = seen.setdefault(program(run.graph), [])
        repeats.append(recording.name)
        name = f"{repeats[0]}/{len(repeats)}"
        graphs[name], family[name] = replace(run, run=name), own
        if recording.name in ASLEEP:
            asleep.append(name)
    return PublicRuns(graphs, family, tuple(asleep), tuple(left_out))


def _named() -> Iterator[tuple[Recording, str]]:
    """Recordings with a Kineto file, and their family."""
    traced = [entry for entry in load_catalog() if entry.run]
    for recording in recordings(traced):
        own = family_of(recording.name)
        if own is not None and recording.name != "dlrm-8-linked-et":  # the same run without times
            yield recording, own


def _usable(recording: Recording, family: str) -> RunGraph:
    """Its typical step."""
    graph = imported(recording)[1].for_predictors()
    on_device = (graph.nodes["node_type"] == NodeType.COMPUTE) & graph.nodes["stream"].ge(0)
    if not on_device.any():
        raise InputError("no work on a GPU", where=graph.name)
    if family not in ONE_PASS and any(step.name == WINDOW_NAME for step in graph.steps):
        raise InputError("no step marks", where=graph.name)
    return one_step(RunGraph(recording.name, graph, cluster_for(graph, None, None), family))


def one_step(run: RunGraph) -> RunGraph:
    """The recording with its typical step by itself, whose label is the recording's median."""
    result = typical(run)
    label, kind = result.graph.steps[0], "makespan_us" if result.graph.steps[0].period_us is None else "period_us"
    labeled = replace(label, **{kind: result.step_us})  # type: ignore[arg-type]
    return replace(run, graph=replace(result.graph, steps=(labeled,)))


def program(graph: ExecutionGraph) -> str:
    """Equal for recordings of one program: hash of its hardware's names, ops, shapes and messages, in order."""
    columns = graph.nodes[["rank", "node_type", "segment", "op_name", "input_dims", "message_bytes"]].astype("str")
    digest = hashlib.sha256(repr((graph.device_names, graph.world_size)).encode())
    digest.update(columns.to_csv(index=False).encode())
    return digest.hexdigest()
