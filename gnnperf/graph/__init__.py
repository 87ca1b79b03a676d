"""TraceTables -> ExecutionGraph: one function per relation, op cost, storage."""

from gnnperf.graph.build import build_graph
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.graph.storage import load_graph, read_graph, write_graph

__all__ = ["ExecutionGraph", "StepLabel", "build_graph", "load_graph", "read_graph", "write_graph"]
