"""A network at rest: stored parameters become a TypedGNN, once they are known to be those of one."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from gnnperf.core import InputError
from gnnperf.gnn.data.normalizer import RANGED, Normalizer
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.vocabulary import FIELDS, Vocabulary
from gnnperf.gnn.models.gnn import WORK, TypedGNN
from gnnperf.gnn.settings import ModelConfig

# Within these limits no activation of the widest network overflows float32. Trained networks stay below 10 and 100.
MAX_WEIGHT, MAX_INPUT = 1e3, 1e7
MAX_NETWORK_BYTES = 2**27  # leaves space for the rest of a checkpoint


def feature_names() -> dict[str, list[str]]:
    """What a network's inputs are called, by kind: a file of other ones is of another version."""
    return {"work": list(WORK_NAMES), "fields": list(FIELDS)}


def check_network(
    model: ModelConfig, vocabulary: Vocabulary, normalizer: Normalizer, weights: Mapping[str, Tensor]
) -> None:
    """Refuse parts that do not fit each other, before anything of the network's size is allocated."""
    for part, checks in (
        ("vocabulary", _vocabulary(vocabulary)),
        ("normalizer", _normalizer(normalizer)),
        ("weights", _weights(model, vocabulary, weights)),
    ):
        for good in checks:
            if not good:
                raise InputError("names, shapes or values are not those of this network", where=part)


def check_storable(model: ModelConfig, vocabulary: Vocabulary) -> None:
    """Refuse to train what could not be loaded again."""
    size = sum(weight.nbytes for weight in _expected(model, vocabulary).values())
    if size > MAX_NETWORK_BYTES:
        most = f"{MAX_NETWORK_BYTES / 2**20:.0f} MiB, which a checkpoint can hold"
        raise InputError(f"a network of {size / 2**20:.0f} MiB", where="model", allowed=most, remedy="fewer channels")


def is_within(tensor: Tensor, shape: tuple[int, ...], most: float) -> bool:
    """Whether it is float32 of this shape, and no number is NaN or larger than `most`."""
    if tensor.dtype != torch.float32 or tuple(tensor.shape) != shape:
        return False
    low, high = tensor.aminmax() if tensor.numel() else (torch.zeros(()), torch.zeros(()))
    return bool(low >= -most) and bool(high <= most)


def _vocabulary(vocabulary: Vocabulary) -> Iterator[bool]:
    yield set(vocabulary.words) == set(WORK)
    for fields in vocabulary.words.values():
        yield set(fields) == set(FIELDS)
        yield all(len(set(words)) == len(words) for words in fields.values())


def _normalizer(normalizer: Normalizer) -> Iterator[bool]:
    parts = normalizer.mean, normalizer.scale, normalizer.low, normalizer.high
    yield all(set(part) == set(WORK) for part in parts)
    for node_type in WORK:
        shape = (len(WORK_NAMES),)
        mean, scale, low, high = (part[node_type] for part in parts)
        yield is_within(scale, shape, torch.inf) and all(is_within(part, shape, 1e9) for part in (mean, low, high))
        yield bool((scale > 0).all()) and bool((low <= high).all())
        yield all(is_within((end - mean) / scale, shape, MAX_INPUT) for end in (low, high))
    kinds = normalizer.of_kinds.get("low", torch.zeros(0)).shape[:1]
    yield bool(kinds[0]) and set(normalizer.of_kinds) == {"low", "high"}
    yield all(is_within(end, (*kinds, len(RANGED)), torch.inf) for end in normalizer.of_kinds.values())


def _weights(model: ModelConfig, vocabulary: Vocabulary, weights: Mapping[str, Tensor]) -> Iterator[bool]:
    expected = _expected(model, vocabulary)
    yield set(weights) == set(expected)
    for name, weight in weights.items():
        yield is_within(weight, tuple(expected[name].shape), MAX_WEIGHT)


def _expected(model: ModelConfig, vocabulary: Vocabulary) -> Mapping[str, Tensor]:
    """Its parameters by name: shapes without memory."""
    with torch.device("meta"):
        return TypedGNN(model, vocabulary).state_dict()
