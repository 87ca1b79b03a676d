"""What can be stated of the data set (conf/data) and of the network (conf/model). Torch is not needed to read it."""

from dataclasses import dataclass, field

from gnnperf.core import require


@dataclass
class DataConfig:
    """A data set and how it is fed to the network (not frozen: Hydra composes into it)."""

    path: str = "datasets/cpu-gloo"  # folder with one folder per run, splits.json and README.md
    axis: str = "run"  # which split of splits.json
    cache_dir: str = "~/.cache/gnnperf"  # where graphs and features are cached, by fingerprint
    batch_size: int = 4  # steps (graphs) per batch, one step per run
    # nodes that one batch may hold; a graph above its share of it (1 / batch_size) is cut into segments of time, which
    # train as graphs of their own. Memory grows with it: some 15 to 30 KB per node.
    max_nodes_per_batch: int = 50_000
    # what `gnnperf calibrate` wrote (ops.parquet) on the CPU that the runs ran on: the analytical base learns from them
    # how ops cost that training runs do not have
    op_tables: list[str] = field(default_factory=list)
    # another data set's folder, to be tested on in place of the split's test part: of another day or machine. Of its
    # complete recordings those of runs that the split trains or validates on are left out. It changes nothing that is
    # learned, and is not in the repr: rows of a table are distinguished by theirs.
    test_path: str | None = field(default=None, repr=False)
    # other data sets' folders, to be trained on next to the split's train part: all of their complete recordings but
    # those of programs that are tested on. For axes that go by programs (`run`, `workload..`). Scaled to the machine of
    # `path` by runs that both have (data.machine_scales), which are left out.
    train_paths: list[str] = field(default_factory=list)
    # another data set's folder: recordings of the same runs on another machine. The network corrects their latencies,
    # where there are any, instead of the analytical ones (data.source); None: no source.
    source_path: str | None = None

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        require(bool(self.axis), "data.axis", self.axis, "an axis of splits.json")
        require(self.batch_size >= 1, "data.batch_size", self.batch_size, "a whole number >= 1")
        least = 8 * self.batch_size
        require(self.max_nodes_per_batch >= least, "data.max_nodes_per_batch", self.max_nodes_per_batch,
                f"{least} or more, 8 per graph of a batch")  # fmt: skip


@dataclass
class ModelConfig:
    """The typed graph network (not frozen: Hydra composes into it)."""

    hidden_channels: int = 64  # width of every node's state
    num_layers: int = 6  # rounds of message passing; 0 is a multi-layer perceptron per node
    dropout: float = 0.05  # share of the state dropped in training
    # share of codes replaced by the unknown code in training, so that its embedding is trained
    op_dropout: float = 0.05

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        require(1 <= self.hidden_channels <= 4096, "model.hidden_channels", self.hidden_channels, "1 to 4096")
        require(0 <= self.num_layers <= 64, "model.num_layers", self.num_layers, "0 to 64")
        require(0 <= self.dropout < 1, "model.dropout", self.dropout, "0 <= dropout < 1")
        require(0 <= self.op_dropout < 1, "model.op_dropout", self.op_dropout, "0 <= op_dropout < 1")
