"""How much memory a step holds at its peak, rank by rank: from what a recording shows of its ops, or from a capture."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
