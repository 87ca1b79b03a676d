"""Known changes of a program as edits of its graph: graph in, graph out, and what the edit cannot know."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
