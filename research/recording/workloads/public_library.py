"""What models of public libraries share: batches, losses, optimizers, and how they are trained.

Weights are random and data are made up. The libraries (timm, torchvision, transformers, torch-geometric) are the
extra `models` of research; a run of another program does not need them.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.accelerate import compiled
from research.recording.workloads.replicate import DEFAULT_BUCKET_MB, own_batches, replicate
from research.recording.workloads.workload import SEED, LossTrainer, Trainer, arithmetic, device

Inputs = dict[str, torch.Tensor]
MEL = 80  # frequencies of a sound's features


class Sizes(Protocol):
    """What batches depend on."""

    @property
    def size(self) -> int: ...  # height and width of an image, tokens of a text

    @property
    def batch(self) -> int: ...  # samples

    @property
    def classes(self) -> int: ...  # of images, sounds and texts

    @property
    def vocabulary(self) -> int: ...  # different tokens


@dataclass(frozen=True)
class Program:
    """A model with its data."""

    model: nn.Module  # with random weights
    inputs: Callable[[], Inputs]  # makes a batch, on the CPU
    loss: Callable[[Callable[..., Any], Inputs], torch.Tensor]  # of the model on a batch, [] float32


def trainer_of(build: Callable[[], Program], precision: str, optimizer: str, *, compile: bool = False) -> Trainer:
    """The replicated model and batches of a program; `optimizer` is a name of `OPTIMIZERS`."""
    torch.manual_seed(SEED)
    with device():  # weights are drawn where they stay
        program = build()
    plain = program.model.train().to(device())
    batches = own_batches(lambda: {name: tensor.to(device()) for name, tensor in program.inputs().items()})
    if dist.get_world_size() > 1:
        _freeze_unused(plain, program.loss(plain, next(batches)))
    model = replicate(plain, DEFAULT_BUCKET_MB)
    products, run = arithmetic(precision), compiled(model, compile)

    def forward() -> torch.Tensor:
        with products():
            return program.loss(run, next(batches))

    return LossTrainer((model,), forward, (OPTIMIZERS[optimizer](model.parameters()),))


def _freeze_unused(model: nn.Module, loss: torch.Tensor) -> None:
    """Weights that the loss of no rank uses get no gradients, for which DDP would wait."""
    loss.backward()
    weights = list(model.parameters())
    used = torch.tensor([float(weight.grad is not None) for weight in weights], device=device())
    dist.all_reduce(used)  # data may differ in what they use
    for weight, ranks in zip(weights, used.tolist(), strict=True):
        weight.requires_grad_(ranks > 0)
        weight.grad = None


OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = MappingProxyType({
    "adamw": partial(torch.optim.AdamW, lr=1e-4),
    "adamw_fused": partial(torch.optim.AdamW, lr=1e-4, fused=True),
    "sgd": partial(torch.optim.SGD, lr=0.01, momentum=0.9),
    "rmsprop": partial(torch.optim.RMSprop, lr=1e-4),
    "adagrad": partial(torch.optim.Adagrad, lr=1e-3),
    "nadam": partial(torch.optim.NAdam, lr=1e-4),
    "adam_loop": partial(torch.optim.Adam, lr=1e-4, foreach=False),
})  # fmt: skip


def class_loss(model: Callable[..., Any], inputs: Inputs) -> torch.Tensor:
    return F.cross_entropy(model(inputs["x"]).float(), inputs["y"])


def own_loss(model: Callable[..., Any], inputs: Inputs) -> torch.Tensor:
    """The loss that a model of transformers computes from its labels."""
    loss: torch.Tensor = model(**inputs).loss
    return loss


def labels(at: Sizes) -> torch.Tensor:
    return torch.randint(0, at.classes, (at.batch,))


def tokens(at: Sizes) -> torch.Tensor:
    return torch.randint(5, at.vocabulary, (at.batch, at.size))  # the first ones mark beginnings and ends


def text(at: Sizes) -> Inputs:
    drawn = tokens(at)
    return {"input_ids": drawn, "labels": drawn}


def translation(at: Sizes) -> Inputs:
    return {"input_ids": tokens(at), "labels": tokens(at)[:, : max(at.size // 2, 1)].contiguous()}


def speech_to_text(frames: int, at: Sizes) -> Inputs:
    """Sound as Whisper's features; `size` tokens of text."""
    return {"input_features": torch.randn(at.batch, MEL, frames), "labels": tokens(at)}


def sound(per_size: int, letters: int, at: Sizes) -> Inputs:
    """`per_size` times `size` samples of sound, and a transcript."""
    return {"input_values": torch.randn(at.batch, per_size * at.size),
            "labels": torch.randint(1, 31, (at.batch, letters))}  # fmt: skip


def pixels(at: Sizes) -> Inputs:
    """Images as transformers names them."""
    return {"pixel_values": torch.randn(at.batch, 3, at.size, at.size)}


def labeled_pixels(at: Sizes) -> Inputs:
    """The same with one of ten classes for each pixel."""
    return pixels(at) | {"labels": torch.randint(0, 10, (at.batch, at.size, at.size))}


def spectra(frames: int, frequencies: int, at: Sizes) -> Inputs:
    """Spectrograms and their classes."""
    return {"input_values": torch.randn(at.batch, frames, frequencies), "labels": labels(at)}


def series(ahead: int, at: Sizes) -> Inputs:
    """Seven series of `size` steps, and of the steps that follow."""
    return {"past_values": torch.randn(at.batch, at.size, 7), "future_values": torch.randn(at.batch, ahead, 7)}


def classifier(name: str, settings: Mapping[str, Any], at: Sizes) -> Program:
    """An image classifier of timm."""
    model = importlib.import_module("timm").create_model(name, num_classes=at.classes, **settings)
    return images_to_classes(model, (3, at.size, at.size), at)


def images_to_classes(model: nn.Module, shape: tuple[int, ...], at: Sizes) -> Program:
    """A model of images, or videos, of this shape: a class for each."""
    return Program(model, lambda: {"x": torch.randn(at.batch, *shape), "y": labels(at)}, class_loss)


def segmentation(name: str, at: Sizes) -> Program:
    """A segmentation model of torchvision: a class per pixel."""
    create = getattr(importlib.import_module("torchvision.models.segmentation"), name)
    image = (at.size, at.size)

    def inputs() -> Inputs:
        return {"x": torch.randn(at.batch, 3, *image), "y": torch.randint(0, 21, (at.batch, *image))}

    def loss(run: Callable[..., Any], batch: Inputs) -> torch.Tensor:
        return F.cross_entropy(run(batch["x"])["out"].float(), batch["y"])

    return Program(create(weights=None, weights_backbone=None, num_classes=21), inputs, loss)


def transformers_model(name: str, settings: Mapping[str, Any], inputs: Callable[[Any], Inputs], at: Sizes) -> Program:
    """A model of transformers by its class; its configuration is the class's own with these settings."""
    kind = getattr(importlib.import_module("transformers"), name)
    return Program(kind(kind.config_class(**settings)), lambda: inputs(at), own_loss)


def clip(parts: Mapping[str, Any], num_tokens: int, at: Sizes) -> Program:
    """Images and texts, compared with each other."""
    library = importlib.import_module("transformers")

    def inputs() -> Inputs:
        return {"input_ids": torch.randint(5, at.vocabulary, (at.batch, num_tokens)),
                "pixel_values": torch.randn(at.batch, 3, at.size, at.size)}  # fmt: skip

    model = library.CLIPModel(library.CLIPConfig(**parts))
    return Program(model, inputs, lambda run, batch: run(**batch, return_loss=True).loss)


def graph(name: str, channels: tuple[int, int], num_nodes: int, at: Sizes, neighbors: int = 8) -> Program:
    """A graph network of torch-geometric that classifies the nodes of a random graph.

    Args:
        name: of its class.
        channels: of its inputs and of its hidden layers.
        num_nodes: of the graph.
        at: sizes.
        neighbors: of a node.
    """
    num_features, hidden = channels
    kind = getattr(importlib.import_module("torch_geometric.nn"), name)
    model = kind(num_features, hidden_channels=hidden, num_layers=3, out_channels=40)

    def inputs() -> Inputs:
        return {"x": torch.randn(num_nodes, num_features), "y": torch.randint(0, 40, (num_nodes,)),
                "edge_index": torch.randint(0, num_nodes, (2, num_nodes * neighbors))}  # fmt: skip

    def loss(run: Callable[..., Any], batch: Inputs) -> torch.Tensor:
        return F.cross_entropy(run(batch["x"], batch["edge_index"]).float(), batch["y"])

    return Program(model, inputs, loss)
