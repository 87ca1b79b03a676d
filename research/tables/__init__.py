"""Measurements of others in one form: one row per measured op, sizes as numbers, units, and how it was measured."""

from research.tables.aiconfigurator import read_aiconfigurator
from research.tables.columns import COLUMNS, OpTable, grouped, joined, spec_of
from research.tables.neusight import read_neusight

__all__ = ["COLUMNS", "OpTable", "grouped", "joined", "read_aiconfigurator", "read_neusight", "spec_of"]
