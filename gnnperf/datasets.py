"""The recorded data sets as a PyG dataset, and the metrics that models on them are compared by.

    train = ExecutionGraphs("datasets", "cpu-gloo", axis="workload", split="train")
    test = ExecutionGraphs("datasets", "cpu-gloo", axis="workload", split="test")
    Evaluator(test).evaluate([model(graph) for graph in test])

A graph is one step of a training run. Node stores of `host`, `compute`, `memory`, `comm` and `collective` hold

    x            [num_nodes, num_features] float32, normalized on the training split (docs/features.md)
    codes        [num_nodes, num_texts] int64, entries of the vocabulary
    base_us      [num_nodes] the analytical model's latency
    latency_us   [num_nodes] the label: measured next to whatever ran at the same time, mean over steps; NaN unknown
    node_id      [num_nodes] row of the step's node table

`device` and `link` stores hold `x` only. Edge types are the relations of the execution graph and their reverses.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Dataset, HeteroData

from gnnperf.core import WORK_TYPES, InputError, require
from gnnperf.gnn import FIELDS, DataConfig, PreparedData, Step, gmae, load_data, step_time_us

SPLITS = ("train", "val", "test")
NODE_TYPES = tuple(map(str, WORK_TYPES))


class ExecutionGraphs(Dataset):
    """One part of one split of a recorded data set.

    Attributes:
        steps: what the graphs were made from: node tables, clusters, measured step times.
    """

    def __init__(self, root: str | Path = "datasets", name: str = "cpu-gloo", axis: str = "run", split: str = "train",
                 cache_dir: str = "~/.cache/gnnperf", test_name: str | None = None) -> None:  # fmt: skip
        """Read the data set; features are cached.

        Args:
            root: folder of the data sets.
            name: folder below it, with splits.json.
            axis: what train and test differ in, e.g. run, size, workload, world_size, link (splits.json).
            split: train, val or test.
            cache_dir: where graphs and features are kept.
            test_name: another folder below `root`, whose recordings are the test part: those of another machine.

        Raises:
            InputError: no such data set, axis or split.
        """
        require(split in SPLITS, "split", split, ", ".join(SPLITS))
        super().__init__(None)
        test_path = None if test_name is None else str(Path(root) / test_name)
        self._data = prepared(DataConfig(str(Path(root) / name), axis, cache_dir, test_path=test_path))
        self.steps: tuple[Step, ...] = self._data.steps[split]

    def len(self) -> int:
        """Number of graphs."""
        return len(self.steps)

    def get(self, idx: int) -> HeteroData:
        """One step as a graph."""
        return self.steps[idx].data

    @property
    def num_codes(self) -> dict[str, tuple[int, ...]]:
        """Node type -> entries of the vocabulary per column of `codes`, with the unknown one (code 0)."""
        vocabulary = self._data.vocabulary
        return {kind: tuple(vocabulary.num_codes(kind, field) for field in FIELDS) for kind in NODE_TYPES}


_PREPARED: dict[tuple[Path, str, str, str | None], PreparedData] = {}


def prepared(config: DataConfig) -> PreparedData:
    """The data set, read once per process: its parts share vocabulary and normalization."""
    key = (Path(config.path).resolve(), config.axis, config.cache_dir, config.test_path)
    if key not in _PREPARED:
        _PREPARED[key] = load_data(config)
    return _PREPARED[key]


class Evaluator:
    """Fixed metrics, so that results of several models can be compared.

    Attributes:
        steps: with the labels.
    """

    def __init__(self, dataset: ExecutionGraphs) -> None:
        """Evaluate on `dataset`, or on a slice of it."""
        self.steps = tuple(dataset.steps[index] for index in dataset.indices())

    def evaluate(
        self,
        latency_us: Sequence[Mapping[str, Tensor]],
        intervals_us: Sequence[Mapping[str, tuple[Tensor, Tensor]]] | None = None,
    ) -> dict[str, float]:
        """Errors of predicted latencies, and of the step times that they schedule to.

        Args:
            latency_us: per graph, node type -> [num_nodes] predicted latency.
            intervals_us: per graph, node type -> lowest and highest latency, [num_nodes] each; None: no intervals.

        Returns:
            time_weighted_error: sum of |predicted - measured| / sum of measured, over labeled nodes.
            signed_error: sum of predicted / sum of measured - 1.
            gmae: geometric mean of |predicted / measured - 1| over nodes.
            step_error, step_error_median, step_error_max: |predicted / measured - 1| of step times.
            step_signed_error: mean of predicted / measured - 1 of step times.
            coverage: share of labeled nodes inside their interval; only with `intervals_us`.
            interval_ratio: median of highest / lowest; only with `intervals_us`.

        Raises:
            InputError: not one prediction per graph and node, or a latency that is not finite.
        """
        if len(latency_us) != len(self.steps):
            raise InputError(f"{len(latency_us)} predictions for {len(self.steps)} graphs", where="latency_us",
                             allowed="one per graph, in the order of the data set")  # fmt: skip
        pairs = [self._nodes(step, given) for step, given in zip(self.steps, latency_us, strict=True)]
        predicted, measured = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
        steps = np.array([self._step_ratio(*pair) for pair in zip(self.steps, latency_us, strict=True)])
        errors = np.abs(steps - 1.0)
        result = {
            "time_weighted_error": float(np.abs(predicted - measured).sum() / measured.sum()),
            "signed_error": float(predicted.sum() / measured.sum() - 1.0),
            "gmae": gmae(predicted, measured),
            "step_error": float(errors.mean()),
            "step_error_median": float(np.median(errors)),
            "step_error_max": float(errors.max()),
            "step_signed_error": float((steps - 1.0).mean()),
        }
        return result if intervals_us is None else result | self._coverage(intervals_us)

    def _nodes(self, step: Step, given: Mapping[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """Predicted and measured latencies of labeled nodes."""
        predicted, measured = [], []
        for node_type in NODE_TYPES:
            label = step.data[node_type].latency_us.numpy()
            value = _array(given, node_type, len(label), step.run)
            labeled = np.nan_to_num(label) > 0
            predicted.append(value[labeled])
            measured.append(label[labeled])
        return np.concatenate(predicted).astype(np.float64), np.concatenate(measured).astype(np.float64)

    def _step_ratio(self, step: Step, given: Mapping[str, Tensor]) -> float:
        """Predicted step time / measured."""
        latency_us = np.full(len(step.nodes), np.nan)  # [num_nodes]
        for node_type in NODE_TYPES:
            store = step.data[node_type]
            latency_us[store.node_id.numpy()] = _array(given, node_type, len(store.node_id), step.run)
        return step_time_us(step, latency_us) / step.step_us

    def _coverage(self, intervals_us: Sequence[Mapping[str, tuple[Tensor, Tensor]]]) -> dict[str, float]:
        bounds = [
            torch.stack((label, low, high))[:, label > 0]
            for step, given in zip(self.steps, intervals_us, strict=True)
            for node_type, (low, high) in given.items()
            for label in [step.data[node_type].latency_us]
        ]
        label, low, high = torch.cat(bounds, dim=1)
        inside = (label >= low) & (label <= high)
        return {"coverage": float(inside.float().mean()), "interval_ratio": float((high / low).nanmedian())}


def _array(given: Mapping[str, Tensor], node_type: str, num_nodes: int, run: str) -> np.ndarray:
    """[num_nodes] float64 latencies of one node type."""
    value = given[node_type].detach().numpy() if node_type in given else np.zeros(0)
    if len(value) != num_nodes or not np.isfinite(value).all():
        raise InputError(f"{len(value)} latencies for {num_nodes} nodes of type {node_type}", where=run,
                         allowed="one finite latency in us per node")  # fmt: skip
    return value.astype(np.float64)
