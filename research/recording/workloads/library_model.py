"""Models of public libraries (timm, torchvision, transformers, torch-geometric), trained as their users train them.

Weights are random and data are made up. The libraries are the extra `models` of research; a run of another program
does not need them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from gnnperf.core import InputError
from research.recording.workloads.accelerate import compiled
from research.recording.workloads.replicate import DEFAULT_BUCKET_MB, own_batches, replicate
from research.recording.workloads.workload import SEED, LossTrainer, Trainer, Workload, arithmetic, device

Inputs = dict[str, torch.Tensor]
CLASSES, VOCABULARY = 1000, 32_000
NODES_PER_SAMPLE, NEIGHBORS, NODE_FEATURES = 1024, 8, 128  # of a random graph


@dataclass(frozen=True)
class Program:
    """A model with its data."""

    model: nn.Module  # with random weights
    inputs: Callable[[], Inputs]  # makes a batch, on the CPU
    loss: Callable[[Callable[..., Any], Inputs], torch.Tensor]  # of the model on a batch, [] float32


@dataclass(frozen=True)
class LibraryModel(Workload, kind="library", width="size",
                   letters={"model": "", "size": "s", "batch": "b"}, otherwise={
    "precision": "", "optimizer": "", "compile": "compile",
}):  # fmt: skip
    """A model of a library.

    Attributes:
        model: a name of `MODELS`.
        size: height and width of an image, tokens of a text, samples of a sound; a graph's hidden channels.
        batch: samples per rank; of a graph model, thousands of nodes.
        precision: of products, float32 or bfloat16 (autocast).
        optimizer: of all weights, a name of `OPTIMIZERS`.
        compile: with torch.compile (CUDA only).
    """

    model: str = "graph_sage"
    size: int = 64
    batch: int = 1
    precision: str = "float32"
    optimizer: str = "adamw"
    compile: bool = False

    def build(self) -> Trainer:
        """The replicated model and batches."""
        if self.model not in MODELS:
            raise InputError(f"unknown model {self.model!r}", where="model", allowed=", ".join(MODELS))
        torch.manual_seed(SEED)
        with device():  # weights are drawn where they stay
            program = MODELS[self.model](self)
        model = replicate(program.model.train().to(device()), DEFAULT_BUCKET_MB)
        batches = own_batches(lambda: {name: tensor.to(device()) for name, tensor in program.inputs().items()})
        precision, run = arithmetic(self.precision), compiled(model, self.compile)

        def forward() -> torch.Tensor:
            with precision():
                return program.loss(run, next(batches))

        return LossTrainer((model,), forward, (OPTIMIZERS[self.optimizer](model.parameters()),))


OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = MappingProxyType({
    "adamw": partial(torch.optim.AdamW, lr=1e-4),
    "adamw_fused": partial(torch.optim.AdamW, lr=1e-4, fused=True),
    "sgd": partial(torch.optim.SGD, lr=0.01, momentum=0.9),
    "rmsprop": partial(torch.optim.RMSprop, lr=1e-4),
})  # fmt: skip


def _class_loss(model: Callable[..., Any], inputs: Inputs) -> torch.Tensor:
    return F.cross_entropy(model(inputs["x"]).float(), inputs["y"])


def _own_loss(model: Callable[..., Any], inputs: Inputs) -> torch.Tensor:
    """The loss that a model of transformers computes from its labels."""
    loss: torch.Tensor = model(**inputs).loss
    return loss


def _labels(size: LibraryModel) -> torch.Tensor:
    return torch.randint(0, CLASSES, (size.batch,))


def _tokens(size: LibraryModel) -> torch.Tensor:
    return torch.randint(5, VOCABULARY, (size.batch, size.size))  # the first ones mark beginnings and ends


def _timm(name: str, size: LibraryModel) -> Program:
    """An image classifier of timm."""
    model = importlib.import_module("timm").create_model(name, num_classes=CLASSES)
    shape = (size.batch, 3, size.size, size.size)
    return Program(model, lambda: {"x": torch.randn(shape), "y": _labels(size)}, _class_loss)


def _segmentation(name: str, size: LibraryModel) -> Program:
    """A segmentation model of torchvision: a class per pixel."""
    create = getattr(importlib.import_module("torchvision.models.segmentation"), name)
    model = create(weights=None, weights_backbone=None, num_classes=21)
    image = (size.size, size.size)

    def inputs() -> Inputs:
        return {"x": torch.randn(size.batch, 3, *image), "y": torch.randint(0, 21, (size.batch, *image))}

    def loss(run: Callable[..., Any], batch: Inputs) -> torch.Tensor:
        return F.cross_entropy(run(batch["x"])["out"].float(), batch["y"])

    return Program(model, inputs, loss)


def _video(name: str, size: LibraryModel) -> Program:
    """A video classifier of torchvision: 8 frames."""
    model = getattr(importlib.import_module("torchvision.models.video"), name)(weights=None, num_classes=CLASSES)
    shape = (size.batch, 3, 8, size.size, size.size)
    return Program(model, lambda: {"x": torch.randn(shape), "y": _labels(size)}, _class_loss)


def _transformers(name: str, settings: Mapping[str, Any], inputs: Callable[[LibraryModel], Inputs],
                  size: LibraryModel) -> Program:  # fmt: skip
    """A model of transformers by its class; its configuration is the class's own with these settings."""
    library = importlib.import_module("transformers")
    kind = getattr(library, name)
    return Program(kind(kind.config_class(**settings)), lambda: inputs(size), _own_loss)


def _text(size: LibraryModel) -> Inputs:
    tokens = _tokens(size)
    return {"input_ids": tokens, "labels": tokens}


def _translation(size: LibraryModel) -> Inputs:
    return {"input_ids": _tokens(size), "labels": _tokens(size)[:, : max(size.size // 2, 1)].contiguous()}


def _speech_to_text(size: LibraryModel) -> Inputs:
    """30 s of sound as Whisper's features; `size` tokens of text."""
    return {"input_features": torch.randn(size.batch, 80, 3000), "labels": _tokens(size)}


def _sound(size: LibraryModel) -> Inputs:
    """`size` samples of sound and a transcript of 16 characters."""
    return {"input_values": torch.randn(size.batch, size.size), "labels": torch.randint(1, 31, (size.batch, 16))}


def _text_and_images(size: LibraryModel) -> Inputs:
    return {"input_ids": torch.randint(5, VOCABULARY, (size.batch, 64)),
            "pixel_values": torch.randn(size.batch, 3, size.size, size.size)}  # fmt: skip


def _graph(name: str, size: LibraryModel) -> Program:
    """A graph network of torch-geometric that classifies the nodes of a random graph."""
    kind = getattr(importlib.import_module("torch_geometric.nn"), name)
    model = kind(NODE_FEATURES, hidden_channels=size.size, num_layers=3, out_channels=40)
    num_nodes = size.batch * NODES_PER_SAMPLE

    def inputs() -> Inputs:
        return {"x": torch.randn(num_nodes, NODE_FEATURES), "y": torch.randint(0, 40, (num_nodes,)),
                "edge_index": torch.randint(0, num_nodes, (2, num_nodes * NEIGHBORS))}  # fmt: skip

    def loss(run: Callable[..., Any], batch: Inputs) -> torch.Tensor:
        return F.cross_entropy(run(batch["x"], batch["edge_index"]).float(), batch["y"])

    return Program(model, inputs, loss)


class UNet(nn.Module):
    """A denoising network of two resolutions with a skip connection (the layout of Ho et al. 2020, smaller)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(1, channels), nn.SiLU(), nn.Linear(channels, 2 * channels))
        self.down, self.inner = _denoise(channels, 2 * channels), _denoise(2 * channels, 2 * channels)
        self.attention = nn.MultiheadAttention(2 * channels, 4, batch_first=True)
        self.up, self.last = _denoise(3 * channels, channels), nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, images: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """[B, 3, H, W], [B, 1] -> [B, 3, H, W]."""
        first = self.first(images)  # [B, C, H, W]
        inner = self.down(F.avg_pool2d(first, 4)) + self.time(time)[:, :, None, None]  # [B, 2C, H/4, W/4]
        tokens = self.inner(inner).flatten(2).transpose(1, 2)  # [B, H W / 16, 2C]
        mixed = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
        below = mixed.transpose(1, 2).unflatten(2, inner.shape[2:])
        merged = torch.cat([F.interpolate(below, scale_factor=4.0), first], dim=1)
        result: torch.Tensor = self.last(self.up(merged))
        return result


def _denoise(before: int, channels: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, channels, 3, padding=1), nn.GroupNorm(8, channels), nn.SiLU(),
                         nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(8, channels), nn.SiLU())  # fmt: skip


def _diffusion(size: LibraryModel) -> Program:
    """One denoising step: the noise of a random time is predicted."""

    def inputs() -> Inputs:
        return {"x": torch.randn(size.batch, 3, size.size, size.size), "time": torch.rand(size.batch, 1)}

    def loss(run: Callable[..., Any], batch: Inputs) -> torch.Tensor:
        noise = torch.randn_like(batch["x"])
        noisy = batch["x"] * (1 - batch["time"][:, :, None, None]) + noise * batch["time"][:, :, None, None]
        return F.mse_loss(run(noisy, batch["time"]).float(), noise)

    return Program(UNet(128), inputs, loss)


class Recurrent(nn.Module):
    """A recurrent language model: embedding, two LSTM layers, output layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(VOCABULARY, width), nn.LSTM(width, width, 2, batch_first=True)
        self.output = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[B, S] int64 -> [B, S, V]."""
        logits: torch.Tensor = self.output(self.lstm(self.embed(tokens))[0])
        return logits


def _lstm(size: LibraryModel) -> Program:
    def loss(run: Callable[..., Any], batch: Inputs) -> torch.Tensor:
        return F.cross_entropy(run(batch["x"]).flatten(0, 1).float(), batch["x"].flatten())

    return Program(Recurrent(1024), lambda: {"x": _tokens(size)}, loss)


GPT2 = {"n_layer": 6, "vocab_size": VOCABULARY}
LLAMA = {"hidden_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 16, "num_key_value_heads": 4,
         "intermediate_size": 2816, "vocab_size": VOCABULARY}  # fmt: skip
BERT = {"num_hidden_layers": 6, "vocab_size": VOCABULARY}
DEBERTA = BERT | {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
}
T5 = {"num_layers": 4, "vocab_size": VOCABULARY, "decoder_start_token_id": 0}
BART = {"encoder_layers": 3, "decoder_layers": 3, "vocab_size": VOCABULARY}
WHISPER = {"encoder_layers": 4, "decoder_layers": 4, "d_model": 512, "encoder_attention_heads": 8,
           "decoder_attention_heads": 8}  # fmt: skip
WAV2VEC2 = {"num_hidden_layers": 6, "mask_time_prob": 0.0, "layerdrop": 0.0}
MIXTRAL = {"hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
           "intermediate_size": 1024, "num_local_experts": 4, "vocab_size": VOCABULARY}  # fmt: skip
CLIP_PARTS = {
    "text_config": {"num_hidden_layers": 4, "vocab_size": VOCABULARY},
    "vision_config": {"num_hidden_layers": 4},
}


def _clip(size: LibraryModel) -> Program:
    """Images and texts, compared with each other."""
    library = importlib.import_module("transformers")
    model = library.CLIPModel(library.CLIPConfig(**CLIP_PARTS))
    return Program(model, lambda: _text_and_images(size), lambda run, batch: run(**batch, return_loss=True).loss)


MODELS: Mapping[str, Callable[[LibraryModel], Program]] = MappingProxyType({
    "resnet50": partial(_timm, "resnet50"),
    "efficientnet_b0": partial(_timm, "efficientnet_b0"),
    "mobilenetv3": partial(_timm, "mobilenetv3_large_100"),
    "densenet121": partial(_timm, "densenet121"),
    "regnety": partial(_timm, "regnety_016"),
    "convnext": partial(_timm, "convnext_tiny"),
    "vit": partial(_timm, "vit_small_patch16_224"),
    "swin": partial(_timm, "swin_tiny_patch4_window7_224"),
    "mixer": partial(_timm, "mixer_b16_224"),
    "deeplab": partial(_segmentation, "deeplabv3_resnet50"),
    "video_resnet": partial(_video, "r3d_18"),
    "gpt2": partial(_transformers, "GPT2LMHeadModel", GPT2, _text),
    "llama": partial(_transformers, "LlamaForCausalLM", LLAMA, _text),
    "mixtral": partial(_transformers, "MixtralForCausalLM", MIXTRAL, _text),
    "bert": partial(_transformers, "BertForMaskedLM", BERT, _text),
    "deberta": partial(_transformers, "DebertaV2ForMaskedLM", DEBERTA, _text),
    "t5": partial(_transformers, "T5ForConditionalGeneration", T5, _translation),
    "bart": partial(_transformers, "BartForConditionalGeneration", BART, _translation),
    "whisper": partial(_transformers, "WhisperForConditionalGeneration", WHISPER, _speech_to_text),
    "wav2vec2": partial(_transformers, "Wav2Vec2ForCTC", WAV2VEC2, _sound),
    "clip": _clip,
    "gcn": partial(_graph, "GCN"),
    "gat": partial(_graph, "GAT"),
    "graph_sage": partial(_graph, "GraphSAGE"),
    "diffusion": _diffusion,
    "lstm": _lstm,
})  # fmt: skip
