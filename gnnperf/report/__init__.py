"""From a StepPrediction to what people read: console, JSON, Parquet, Perfetto timeline, HTML."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
