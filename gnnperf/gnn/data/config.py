"""What can be said about the data set (conf/data)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gnnperf.core import require


@dataclass
class DataConfig:
    """A data set and how it is fed to the network (not frozen: Hydra composes into it).

    Attributes:
        path: folder with one folder per run, splits.json and README.md.
        axis: which split of splits.json.
        cache_dir: where graphs and features are cached, by fingerprint.
        batch_size: steps (graphs) per batch, one step per run.
        max_nodes_per_batch: nodes that one batch may hold; a graph above its share of it (1 / batch_size) is cut into
            segments of time, which train as graphs of their own. Memory grows with it: some 15 to 30 KB per node.
        segment_hops: how far a segment sees beyond its own nodes in training: with fewer hops than layers, states at
            its rim are approximate; with as many, ranks that often talk make it nearly the whole graph.
        max_runs: training recordings used, in the split's order; None: all.
        op_tables: what `gnnperf calibrate` wrote (ops.parquet) on the CPU that the runs ran on: the analytical base
            learns from them how ops cost that training runs do not have.
        residual_target: the network corrects the analytical answer where there is one; False: it corrects a constant
            per type and segment, and the analytical answer is a feature only (then model.max_residual must be larger:
            a node may take ten thousand times its type's median).
        bucket_bytes: of the token buckets that limit the links of runs whose cards name a rate and no bucket (`tc tbf`,
            instances of clouds); None: such links are taken to have none.
        test_path: another data set's folder, to be tested on in place of the split's test part: of another day or
            machine. Of its complete recordings those of runs that the split trains or validates on are left out. It
            changes nothing that is learned, and is not in the repr: rows of a table are told apart by theirs.
        train_paths: other data sets' folders, to be trained on beside the split's train part: all of their complete
            recordings but those of programs that are tested on. For axes that go by programs (`run`, `workload..`).
            In the pace of `path`, where runs of both tell it (data.paces); these runs themselves are left out.
    """

    path: str = "datasets/cpu-gloo"
    axis: str = "run"
    cache_dir: str = "~/.cache/gnnperf"
    batch_size: int = 4
    max_nodes_per_batch: int = 50_000
    segment_hops: int = 2
    max_runs: int | None = None
    op_tables: list[str] = field(default_factory=list)
    residual_target: bool = True
    bucket_bytes: float | None = None
    test_path: str | None = field(default=None, repr=False)
    train_paths: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        require(bool(self.axis), "data.axis", self.axis, "an axis of splits.json")
        require(self.batch_size >= 1, "data.batch_size", self.batch_size, "a whole number >= 1")
        least = 16 * self.batch_size
        require(self.max_nodes_per_batch >= least, "data.max_nodes_per_batch", self.max_nodes_per_batch,
                f"{least} or more, 16 per graph of a batch")  # fmt: skip
        require(self.segment_hops >= 0, "data.segment_hops", self.segment_hops, "a whole number >= 0")
        if self.bucket_bytes is not None:
            require(0 < self.bucket_bytes < math.inf, "data.bucket_bytes", self.bucket_bytes,
                    "a number above 0, or null for none")  # fmt: skip
        if self.max_runs is not None:
            require(self.max_runs >= 1, "data.max_runs", self.max_runs, "a whole number >= 1, or null for all")
