"""A checkpoint whose answers are known."""

from __future__ import annotations

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
from synthetic import prepared

from gnnperf.gnn.checkpoint import Checkpoint, make_checkpoint
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.models.gnn import MAX_RESIDUAL, Head, TypedGNN
from gnnperf.gnn.settings import ModelConfig
from gnnperf.gnn.trust import Shares

OTHERS = Shares(0.75, 0.25)  # of the corrections of kernels, in programs that training lacks


@cache
def toy_data() -> PreparedData:
    """The data set of the toy runs, prepared once for all tests, which read it from this folder."""
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder)
    return prepared(folder)


@cache
def doubling() -> Checkpoint:
    """A network that predicts twice the base for compute nodes and the base elsewhere."""
    data, config = toy_data(), ModelConfig(hidden_channels=8)
    network = TypedGNN(config, data.vocabulary)
    with torch.no_grad():
        head = network.heads["compute"]
        assert isinstance(head, Head)
        head.last.bias[:] = MAX_RESIDUAL * np.arctanh(np.log(2.0) / MAX_RESIDUAL)
    return make_checkpoint(network, config, data, {}, dict.fromkeys(("compute < 100 us", "compute"), OTHERS))
