"""Graphs of models from lists of their operators, with no configuration and no trace."""

from research.listed.build import Owned, Part, Section, build_listed, listed_program, sections

__all__ = ["Owned", "Part", "Section", "build_listed", "listed_program", "sections"]
