"""Loaded by the server that forks ranks, before any test: what every rank would load or wait for by itself.

torch.optim loads torch._dynamo with the first optimizer (2 s). A rank touches 512 MiB of memory in advance (1 s).
"""

import torch._dynamo  # noqa: F401

from gnnperf.record import launcher

launcher.POOL_BYTES = 2**20
