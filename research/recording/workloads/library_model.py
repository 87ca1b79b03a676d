"""Models of public libraries at sizes that fill a GPU, trained as their users train them."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from gnnperf.core import InputError
from research.recording.workloads import public_library as public
from research.recording.workloads.workload import Trainer, Workload

VOCABULARY = 32_000
NODES_PER_SAMPLE, NODE_FEATURES = 1024, 128  # of a random graph
FRAMES, LETTERS = 3000, 16  # of 30 s of sound, and of a transcript


@dataclass(frozen=True)
class LibraryModel(Workload, kind="library", width="size",
                   letters={"model": "", "size": "s", "batch": "b"}, otherwise={
    "precision": "", "optimizer": "", "compile": "compile",
}):  # fmt: skip
    """A model of a library."""

    model: str = "graph_sage"  # a name of `MODELS`
    size: int = 64  # height and width of an image, tokens of a text, samples of a sound; a graph's hidden channels
    batch: int = 1  # samples per rank; of a graph model, thousands of nodes
    precision: str = "float32"  # of products, float32 or bfloat16 (autocast)
    optimizer: str = "adamw"  # of all weights, a name of `OPTIMIZERS`
    compile: bool = False  # with torch.compile (CUDA only)
    classes: ClassVar[int] = 1000
    vocabulary: ClassVar[int] = VOCABULARY

    def build(self) -> Trainer:
        """The replicated model and batches."""
        if self.model not in MODELS:
            raise InputError(f"unknown model {self.model!r}", where="model", allowed=", ".join(MODELS))
        return public.trainer_of(lambda: MODELS[self.model](self), self.precision, self.optimizer, compile=self.compile)


def _video(name: str, at: LibraryModel) -> public.Program:
    """A video classifier of torchvision: 8 frames."""
    kind = getattr(importlib.import_module("torchvision.models.video"), name)
    return public.images_to_classes(kind(weights=None, num_classes=at.classes), (3, 8, at.size, at.size), at)


def _graph(name: str, at: LibraryModel) -> public.Program:
    return public.graph(name, (NODE_FEATURES, at.size), at.batch * NODES_PER_SAMPLE, at)


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


def _diffusion(at: LibraryModel) -> public.Program:
    """One denoising step: the noise of a random time is predicted."""

    def inputs() -> public.Inputs:
        return {"x": torch.randn(at.batch, 3, at.size, at.size), "time": torch.rand(at.batch, 1)}

    def loss(run: Callable[..., Any], batch: public.Inputs) -> torch.Tensor:
        noise = torch.randn_like(batch["x"])
        noisy = batch["x"] * (1 - batch["time"][:, :, None, None]) + noise * batch["time"][:, :, None, None]
        return F.mse_loss(run(noisy, batch["time"]).float(), noise)

    return public.Program(UNet(128), inputs, loss)


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


def _lstm(at: LibraryModel) -> public.Program:
    def loss(run: Callable[..., Any], batch: public.Inputs) -> torch.Tensor:
        return F.cross_entropy(run(batch["x"]).flatten(0, 1).float(), batch["x"].flatten())

    return public.Program(Recurrent(1024), lambda: {"x": public.tokens(at)}, loss)


def _adapted(at: LibraryModel) -> public.Program:
    """LLaMA whose linear layers have low-rank adapters (Hu et al. 2022), which alone are trained."""
    library = importlib.import_module("peft")
    program = public.transformers_model("LlamaForCausalLM", LLAMA, public.text, at)
    return replace(
        program, model=library.get_peft_model(program.model, library.LoraConfig(target_modules="all-linear"))
    )


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
QWEN3 = LLAMA | {"num_hidden_layers": 4, "head_dim": 128, "num_attention_heads": 8}
QWEN3_MOE = MIXTRAL | {"head_dim": 64, "moe_intermediate_size": 256, "num_experts": 16, "num_experts_per_tok": 4}
XLNET = {"d_model": 768, "n_layer": 4, "n_head": 12, "d_inner": 3072, "vocab_size": VOCABULARY}
CONFORMER = WAV2VEC2 | {"num_hidden_layers": 3, "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048,
                        "vocab_size": 32}  # fmt: skip
SPECTRUM = {"num_hidden_layers": 4, "num_labels": 1000}
MAE = {"num_hidden_layers": 4, "decoder_num_hidden_layers": 2}
PATCHTST = {"context_length": 512, "num_input_channels": 7, "prediction_length": 96, "patch_length": 16,
            "patch_stride": 8, "d_model": 256, "num_attention_heads": 8, "ffn_dim": 1024,
            "num_hidden_layers": 3}  # fmt: skip
CLIP_PARTS = {
    "text_config": {"num_hidden_layers": 4, "vocab_size": VOCABULARY},
    "vision_config": {"num_hidden_layers": 4},
}
CLASSIFIERS = {  # -> name in timm
    "resnet50": "resnet50", "efficientnet_b0": "efficientnet_b0", "mobilenetv3": "mobilenetv3_large_100",
    "densenet121": "densenet121", "regnety": "regnety_016", "convnext": "convnext_tiny",
    "vit": "vit_small_patch16_224", "swin": "swin_tiny_patch4_window7_224", "mixer": "mixer_b16_224",
    "vgg16": "vgg16_bn", "resnext50": "resnext50_32x4d", "coatnet": "coatnet_nano_rw_224",
    "poolformer": "poolformer_s12", "mobilevit": "mobilevitv2_100",
}  # fmt: skip


MODELS: Mapping[str, Callable[[LibraryModel], public.Program]] = MappingProxyType({
    **{name: partial(public.classifier, timm_name, {}) for name, timm_name in CLASSIFIERS.items()},
    "segformer": partial(public.transformers_model, "SegformerForSemanticSegmentation", {"num_labels": 10},
                         public.labeled_pixels),
    "mae": partial(public.transformers_model, "ViTMAEForPreTraining", MAE, public.pixels),
    "deeplab": partial(public.segmentation, "deeplabv3_resnet50"),
    "video_resnet": partial(_video, "r3d_18"),
    "gpt2": partial(public.transformers_model, "GPT2LMHeadModel", GPT2, public.text),
    "llama": partial(public.transformers_model, "LlamaForCausalLM", LLAMA, public.text),
    "mixtral": partial(public.transformers_model, "MixtralForCausalLM", MIXTRAL, public.text),
    "qwen3": partial(public.transformers_model, "Qwen3ForCausalLM", QWEN3, public.text),
    "qwen3_moe": partial(public.transformers_model, "Qwen3MoeForCausalLM", QWEN3_MOE, public.text),
    "lora": _adapted,
    "xlnet": partial(public.transformers_model, "XLNetLMHeadModel", XLNET, public.text),
    "fnet": partial(public.transformers_model, "FNetForMaskedLM", BERT, public.text),
    "bert": partial(public.transformers_model, "BertForMaskedLM", BERT, public.text),
    "deberta": partial(public.transformers_model, "DebertaV2ForMaskedLM", DEBERTA, public.text),
    "t5": partial(public.transformers_model, "T5ForConditionalGeneration", T5, public.translation),
    "bart": partial(public.transformers_model, "BartForConditionalGeneration", BART, public.translation),
    "whisper": partial(public.transformers_model, "WhisperForConditionalGeneration", WHISPER,
                       partial(public.speech_to_text, FRAMES)),
    "wav2vec2": partial(public.transformers_model, "Wav2Vec2ForCTC", WAV2VEC2, partial(public.sound, 1, LETTERS)),
    "conformer": partial(public.transformers_model, "Wav2Vec2ConformerForCTC", CONFORMER,
                         partial(public.sound, 1, LETTERS)),
    "spectrum": partial(public.transformers_model, "ASTForAudioClassification", SPECTRUM,
                        partial(public.spectra, 1024, 128)),
    "patchtst": partial(public.transformers_model, "PatchTSTForPrediction", PATCHTST, partial(public.series, 96)),
    "clip": partial(public.clip, CLIP_PARTS, 64),
    "gcn": partial(_graph, "GCN"),
    "gat": partial(_graph, "GAT"),
    "graph_sage": partial(_graph, "GraphSAGE"),
    "gin": partial(_graph, "GIN"),
    "diffusion": _diffusion,
    "lstm": _lstm,
})  # fmt: skip
