"""Residual networks that never ran: from a configuration to the graph of a step."""
