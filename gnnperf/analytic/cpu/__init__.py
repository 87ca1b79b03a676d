"""Ops on CPUs: what they are made of, what that costs, and how the prices are fitted."""
