"""Traces of strangers -> TraceTables: Kineto files, directories, archives, execution traces, saved tables."""

from gnnperf.trace.reader import read_run

__all__ = ["read_run"]
