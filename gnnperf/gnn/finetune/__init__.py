"""A network that trained before, and new data -> where training starts."""

from gnnperf.gnn.finetune.begin import begin_from
from gnnperf.gnn.finetune.start import Start, load_start, start_of

__all__ = ["Start", "begin_from", "load_start", "start_of"]
