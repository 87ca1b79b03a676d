"""Graphs of steps that nobody ran: plans, operator lists, folding of equal ranks, capture."""
