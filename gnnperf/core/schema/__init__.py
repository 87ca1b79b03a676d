"""The vocabulary: every node type, relation and column, with dtype, unit and meaning.

All packages speak these words. Unknown is NaN (floats), None (strings) or -1 (identifiers), never 0.
"""

from gnnperf.core.schema.features import (
    NUM_TEXT_FEATURES,
    WORK_FEATURES,
    Column,
    names,
    validate,
)
from gnnperf.core.schema.tables import (
    EDGE_COLUMNS,
    EVENT_COLUMNS,
    LABEL_COLUMNS,
    NODE_COLUMNS,
    PREDICTION_COLUMNS,
)
from gnnperf.core.schema.words import (
    DEVICE_KINDS,
    TIMED_RELATIONS,
    WORK_TYPES,
    EventKind,
    Evidence,
    Link,
    NodeType,
    OpFamily,
    Phase,
    Relation,
    Segment,
    Source,
    StepTimeKind,
)

__all__ = [
    "DEVICE_KINDS",
    "EDGE_COLUMNS",
    "EVENT_COLUMNS",
    "LABEL_COLUMNS",
    "NODE_COLUMNS",
    "NUM_TEXT_FEATURES",
    "PREDICTION_COLUMNS",
    "TIMED_RELATIONS",
    "WORK_FEATURES",
    "WORK_TYPES",
    "Column",
    "EventKind",
    "Evidence",
    "Link",
    "NodeType",
    "OpFamily",
    "Phase",
    "Relation",
    "Segment",
    "Source",
    "StepTimeKind",
    "names",
    "validate",
]
