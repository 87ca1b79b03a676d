"""From latencies to step time: the schedule, its critical path and slack, contention, and strict replay."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
