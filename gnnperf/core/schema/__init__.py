"""The vocabulary: every node type, relation and column, with dtype, unit and meaning.

All packages speak these words. Unknown is NaN (floats), None (strings) or -1 (identifiers), never 0.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
