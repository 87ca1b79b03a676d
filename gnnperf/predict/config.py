"""What predict.py can be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gnnperf.hardware import load_device
from gnnperf.hardware.spec import ClusterSpec, DeviceSpec
from gnnperf.hardware.yaml_spec import cluster_from, device_from


class Mode(StrEnum):
    """Who answers. Names are lower case because that is how Hydra spells an enum on the command line."""

    hybrid = "hybrid"  # per node the best answer there is: gnn, else analytic, else uncovered
    gnn = "gnn"  # the network alone; needs a checkpoint
    analytic = "analytic"  # the analytical model alone
    replay = "replay"  # measured class medians of other steps on the structure of one step


@dataclass
class PredictConfig:
    """Options of predict.py (not frozen: Hydra composes into it).

    Attributes:
        trace: trace file, directory of rank files, or archive.
        hardware: the device to predict for, a choice of conf/hardware and its numbers; empty: the trace's own device.
        cluster: links and hosts, a choice of conf/cluster and its numbers; empty: the device's default.
        mode: who answers.
        checkpoint: trained model; None: none.
        out: directory to write; None: outputs/predict/<run>-<mode>-<hardware>.
        step: ordinal of the step in the window; None: the one with the median measured step time.
        cache_dir: where graphs are kept, by fingerprint of code and input; None: nowhere.
    """

    trace: str = "???"  # mandatory, in OmegaConf's spelling
    hardware: dict[str, Any] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)
    mode: Mode = Mode.hybrid
    checkpoint: str | None = None
    out: str | None = None
    step: int | None = None
    cache_dir: str | None = "~/.cache/gnnperf"

    def device_spec(self) -> DeviceSpec | None:
        """The device asked for; None: the trace's own.

        Raises:
            InputError: a key or value that no device has.
        """
        return device_from(self.hardware, "hardware") if self.hardware else None

    def cluster_spec(self) -> ClusterSpec | None:
        """The links and hosts asked for; None: the device's default.

        Raises:
            InputError: a key or value that no cluster has.
        """
        if not self.cluster:
            return None
        return cluster_from(self.cluster, load_device(str(self.cluster.get("device"))), "cluster")
