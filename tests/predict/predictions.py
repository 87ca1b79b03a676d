"""Answers made from the toy graph, with a predictor whose latencies are written down here."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gnnperf.core import Source
from gnnperf.graph import ExecutionGraph, Isolated, Prediction, StepLabel, uncovered_ops
from gnnperf.hardware import ClusterSpec, Contention
from gnnperf.predict import Mode, StepPrediction
from gnnperf.predict.assembly import Question, assemble
from tests.toys import two_rank_graph

GEMM_0, GEMM_1, COLLECTIVE = 3, 10, 14  # node ids in two_rank_graph
ROW = {"op": "aten::mm", "shapes": [[64, 32], [32, 16]], "dtypes": ["float32", "float32"], "latency_us": 30.0,
       "launch_included": False, "device": "a card of mine"}  # fmt: skip


def op_table(folder: Path, *rows: dict[str, object]) -> Path:
    """A measured op table of these rows, or of ROW."""
    path = folder / "ops.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows or (ROW,)))
    return path


@dataclass(frozen=True)
class Fixed:
    """Answers with the measured latencies, except where given otherwise (NaN: not covered).

    With `contention` they are those of isolated ops.
    """

    latency_us: dict[int, float] = field(default_factory=dict)
    source: Source = Source.ANALYTIC
    warnings: tuple[str, ...] = ()
    contention: Contention | None = None

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        latency = graph.nodes["latency_us"].fillna(0.0).to_numpy(copy=True)
        for node, value in self.latency_us.items():
            latency[node] = value
        source = np.where(np.isnan(latency), Source.UNCOVERED, self.source).astype(object)
        unknown = np.full(graph.num_nodes, np.nan)
        return Prediction(
            graph, latency, np.zeros(len(graph.edges)), source, latency, unknown, unknown,
            uncovered_ops(graph, latency), self.warnings,
            None if self.contention is None else Isolated(np.ones(graph.num_nodes, dtype=bool), self.contention),
        )  # fmt: skip


def question(label: StepLabel, **changes: object) -> Question:
    """A question about a step of the toy, on the hardware it was traced on."""
    given: dict[str, object] = {
        "label": label, "structure_step": label.step, "mode": Mode.analytic, "hardware": "v100_sxm2_32gb",
        "cluster": "one_node", "traced_hardware": "Tesla V100-SXM2-32GB", "same_hardware": True,
        "provenance": {"gnnperf": "0", "input_sha256": {"toy": "00"}},
    }  # fmt: skip
    return Question(**{**given, **changes})  # type: ignore[arg-type]


def toy_prediction(latency_us: dict[int, float] | None = None, **changes: object) -> StepPrediction:
    """The toy's only step, with some latencies changed and other questions requested."""
    graph = two_rank_graph()
    prediction = Fixed(latency_us or {}).predict(graph, None)  # type: ignore[arg-type]
    return assemble(prediction, question(changes.pop("label", graph.steps[0]), **changes))  # type: ignore[arg-type]
