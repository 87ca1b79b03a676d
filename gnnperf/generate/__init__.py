"""Graphs of steps that never ran: plans, operator lists, folding of equal ranks, capture."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
