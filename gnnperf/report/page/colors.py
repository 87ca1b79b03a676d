"""Which variable of the style sheet colors what; report.css has their values in light and in dark.

The hues are those of Okabe and Ito (2008), which people with any kind of color vision can tell apart, darkened or
lightened until they stand out from the background by 3:1.
"""

from __future__ import annotations

from gnnperf.core import NodeType, Phase, Source

OTHER = "grey"
OF_TYPE = {
    str(NodeType.HOST): "host", str(NodeType.COMPUTE): "compute", str(NodeType.MEMORY): "memory",
    str(NodeType.COMM): "wait", str(NodeType.COLLECTIVE): "transfer",
}  # fmt: skip
OF_SOURCE = {
    str(Source.MEASURED): "green", str(Source.GNN): "blue", str(Source.GNN_CALIBRATED): "sky",
    str(Source.ANALYTIC): "amber", str(Source.DECLARED): "pink", str(Source.UNCOVERED): "red",
    str(Source.TRACE): "exit", str(Source.SCALED): "wait", str(Source.CLASS_MEDIAN): OTHER,
}  # fmt: skip
OF_PHASE = {
    str(Phase.FORWARD): "blue",
    str(Phase.BACKWARD): "amber",
    str(Phase.OPTIMIZER): "green",
    str(Phase.OTHER): OTHER,
}
