"""Op cost: FLOPs and bytes of one op call from its recorded shapes, by a table of formulas. No torch."""

from gnnperf.graph.cost.table import OpCost, op_cost, supported_ops

__all__ = ["OpCost", "op_cost", "supported_ops"]
