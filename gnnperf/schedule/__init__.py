"""From latencies to step time: the schedule, its critical path and slack, contention, and strict replay."""

from gnnperf.schedule.contention import schedule_with_contention
from gnnperf.schedule.schedule import Schedule, schedule

__all__ = ["Schedule", "schedule", "schedule_with_contention"]
