"""The analytical model: roofline, latency-bandwidth collectives, mean host overheads. Needs no torch, no checkpoint."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
