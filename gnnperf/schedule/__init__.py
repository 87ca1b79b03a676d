"""From latencies to step time: the schedule, its critical path and slack, and strict replay."""

from gnnperf.schedule.schedule import Schedule, schedule

__all__ = ["Schedule", "schedule"]
