"""Op cost: FLOPs and bytes of one op call from its recorded shapes, by a table of formulas. No torch."""

from gnnperf.graph.cost.table import OpCost, fused_name, op_cost, op_family, supported_ops

__all__ = ["OpCost", "fused_name", "op_cost", "op_family", "supported_ops"]
