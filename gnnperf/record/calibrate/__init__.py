"""Micro-benchmarks on the device at hand: its sustained rates, its host's overheads, its links, and a table of ops."""
