"""Models of public libraries at sizes that a processor's core trains in tens of milliseconds a step.

Layers, activations and losses are those of the libraries; hidden channels are free and layers few.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from gnnperf.core import InputError
from research.recording.workloads import public_library as public
from research.recording.workloads.workload import Trainer, Workload

VOCABULARY, HEAD = 2000, 16  # HEAD: channels of an attention head
NODES_PER_SAMPLE = 128  # of a random graph
FRAMES = 128  # of sound, as Whisper and the audio transformer read it


@dataclass(frozen=True)
class SmallModel(Workload, kind="small", width="hidden",
                 letters={"model": "", "hidden": "h", "size": "s", "batch": "b"},
                 otherwise={"optimizer": ""}):  # fmt: skip
    """A small model of a library."""

    model: str = "graph_sage"  # a name of `SMALL_MODELS`
    hidden: int = 32  # channels of its layers; some models have those of their library
    size: int = 32  # height and width of an image, tokens of a text, steps of a series, hundreds of samples of a sound
    batch: int = 4  # samples per rank; of a graph model, hundreds of nodes
    optimizer: str = "adamw"  # of all weights, a name of `OPTIMIZERS`
    classes: ClassVar[int] = 100
    vocabulary: ClassVar[int] = VOCABULARY

    def build(self) -> Trainer:
        """The replicated model and batches."""
        if self.model not in SMALL_MODELS:
            raise InputError(f"unknown model {self.model!r}", where="model", allowed=", ".join(SMALL_MODELS))
        return public.trainer_of(lambda: SMALL_MODELS[self.model](self), "float32", self.optimizer)


@dataclass(frozen=True)
class Settings:
    """Settings of a model's configuration, most of which follow from its hidden channels."""

    times: Mapping[str, float] = field(default_factory=dict)  # setting -> how many times the hidden channels
    heads: Mapping[str, float] = field(default_factory=dict)  # setting -> how many times the attention heads
    sizes: tuple[str, ...] = ()  # settings that are the size
    fixed: Mapping[str, Any] = field(default_factory=dict)  # the others

    def of(self, at: SmallModel) -> dict[str, Any]:
        """Setting -> value."""
        result = {name: int(factor * at.hidden) for name, factor in self.times.items()}
        result |= {name: max(int(factor * at.hidden) // HEAD, 1) for name, factor in self.heads.items()}
        return {**result, **dict.fromkeys(self.sizes, at.size), **self.fixed}


ENCODER = Settings({"hidden_size": 1, "intermediate_size": 4}, {"num_attention_heads": 1},
                   fixed={"num_hidden_layers": 3, "vocab_size": VOCABULARY})  # fmt: skip
GROUPED = replace(ENCODER, times={"hidden_size": 1, "intermediate_size": 2},
                  heads={"num_attention_heads": 1, "num_key_value_heads": 0.5})  # fmt: skip
EXPERTS = replace(GROUPED, fixed={**GROUPED.fixed, "num_local_experts": 4, "num_hidden_layers": 2})
RELATIVE = replace(ENCODER, fixed={**ENCODER.fixed, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
                                                   "num_hidden_layers": 2})  # fmt: skip
NARROW = replace(ENCODER, times={**ENCODER.times, "embedding_size": 0.5}, fixed={**ENCODER.fixed, "num_labels": 100})
GPT = Settings({"n_embd": 1}, {"n_head": 1}, fixed={"n_layer": 3, "vocab_size": VOCABULARY})
PERMUTED = Settings({"d_model": 1, "d_inner": 4}, {"n_head": 1}, fixed={"n_layer": 2, "vocab_size": VOCABULARY})
STATE_SPACE = Settings({"hidden_size": 1}, fixed={"num_hidden_layers": 2, "state_size": 8, "vocab_size": VOCABULARY})
T5 = Settings({"d_model": 1, "d_ff": 4}, {"num_heads": 1},
              fixed={"d_kv": HEAD, "num_layers": 2, "vocab_size": VOCABULARY, "decoder_start_token_id": 0})  # fmt: skip
TWO_STACKS = Settings({"d_model": 1, "encoder_ffn_dim": 4, "decoder_ffn_dim": 4},
                      {"encoder_attention_heads": 1, "decoder_attention_heads": 1},
                      fixed={"encoder_layers": 2, "decoder_layers": 2, "vocab_size": VOCABULARY})  # fmt: skip
WHISPER = replace(TWO_STACKS, fixed={**TWO_STACKS.fixed,
    "num_mel_bins": public.MEL, "max_source_positions": FRAMES // 2, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1, "suppress_tokens": None,
    "begin_suppress_tokens": None})  # fmt: skip
PART = Settings({"hidden_size": 1, "intermediate_size": 4}, {"num_attention_heads": 1}, fixed={"num_hidden_layers": 2})
WAVES = replace(PART, fixed={**PART.fixed, "mask_time_prob": 0.0, "layerdrop": 0.0, "num_conv_pos_embedding_groups": 4,
                                          "num_conv_pos_embeddings": 32})  # fmt: skip
SPECTRUM = replace(PART, fixed={**PART.fixed, "max_length": FRAMES, "num_mel_bins": public.MEL, "num_labels": 100})
MASKED_IMAGES = replace(
    PART, times={**PART.times, "decoder_hidden_size": 1, "decoder_intermediate_size": 4},
    heads={"num_attention_heads": 1, "decoder_num_attention_heads": 1}, sizes=("image_size",),
    fixed={**PART.fixed, "patch_size": 8, "decoder_num_hidden_layers": 1})  # fmt: skip
SERIES = Settings(
    {"d_model": 1, "ffn_dim": 4},
    {"num_attention_heads": 1},
    ("context_length",),
    {"num_input_channels": 7, "prediction_length": 24, "patch_length": 8, "patch_stride": 8, "num_hidden_layers": 2},
)
PYRAMID = Settings({"decoder_hidden_size": 1}, fixed={
    "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [4, 2], "patch_sizes": [7, 3], "strides": [4, 2],
    "num_attention_heads": [1, 2], "mlp_ratios": [2, 2], "num_labels": 10})  # fmt: skip
PATCHES = Settings({"embed_dim": 1}, {"num_heads": 1}, ("img_size",), {"patch_size": 8, "depth": 4})


def _classifier(name: str, settings: Settings, at: SmallModel) -> public.Program:
    return public.classifier(name, settings.of(at), at)


def _windows(at: SmallModel) -> public.Program:
    heads = max(at.hidden // HEAD, 1)
    return public.classifier("swin_tiny_patch4_window7_224", {
        "img_size": at.size, "patch_size": 4, "window_size": 4, "embed_dim": at.hidden, "depths": (2, 2),
        "num_heads": (heads, 2 * heads)}, at)  # fmt: skip


def _stages(at: SmallModel) -> public.Program:
    widths = (at.hidden, at.hidden, 2 * at.hidden, 2 * at.hidden)
    return public.classifier("convnext_atto", {"depths": (1, 1, 2, 1), "dims": widths}, at)


def _mixer(at: SmallModel, **parts: object) -> public.Program:
    """A classifier of timm that mixes patches by linear layers."""
    kind = importlib.import_module("timm.models.mlp_mixer").MlpMixer
    model = kind(at.classes, img_size=at.size, patch_size=8, num_blocks=4, embed_dim=at.hidden, **parts)
    return public.images_to_classes(model, (3, at.size, at.size), at)


def _residual_mixer(at: SmallModel) -> public.Program:
    library = importlib.import_module("timm.models.mlp_mixer")
    return _mixer(at, block_layer=library.ResBlock, norm_layer=library.Affine, mlp_ratio=4)


def _video(at: SmallModel) -> public.Program:
    """Convolutions over 4 frames, factored into space and time (Tran et al. 2018)."""
    blocks: list[nn.Module] = []
    for before, after in ((3, at.hidden), (at.hidden, at.hidden), (at.hidden, 2 * at.hidden)):
        blocks += [nn.Conv3d(before, after, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)),
                   nn.Conv3d(after, after, (3, 1, 1), padding=(1, 0, 0)), nn.BatchNorm3d(after), nn.ReLU()]  # fmt: skip
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(2 * at.hidden, at.classes))
    return public.images_to_classes(model, (3, 4, at.size, at.size), at)


def _transformers(
    name: str, settings: Settings, inputs: Callable[[SmallModel], public.Inputs], at: SmallModel
) -> public.Program:
    return public.transformers_model(name, settings.of(at), inputs, at)


def _clip(at: SmallModel) -> public.Program:
    part = PART.of(at)
    images = part | {"image_size": at.size, "patch_size": 8}
    parts = {"text_config": part | {"vocab_size": VOCABULARY}, "vision_config": images, "projection_dim": at.hidden}
    return public.clip(parts, 16, at)


def _graph(name: str, at: SmallModel) -> public.Program:
    return public.graph(name, (at.size, at.hidden), at.batch * NODES_PER_SAMPLE, at)


class Adversaries(nn.Module):
    """A generator of images and its critic (Radford et al. 2016), trained by one loss."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.generate = nn.Sequential(
            nn.ConvTranspose2d(64, 2 * channels, 4), nn.BatchNorm2d(2 * channels), nn.ReLU(),
            nn.ConvTranspose2d(2 * channels, channels, 4, 2, 1), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.ConvTranspose2d(channels, 3, 4, 2, 1), nn.Tanh())  # fmt: skip
        self.judge = nn.Sequential(
            nn.Conv2d(3, channels, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(channels, 2 * channels, 4, 2, 1),
            nn.InstanceNorm2d(2 * channels), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(32 * channels, 1))  # fmt: skip

    def forward(self, noise: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """[B, 64, 1, 1] noise and [B, 3, 16, 16] images -> [2 B, 1] logits of being real, made ones first."""
        logits: torch.Tensor = self.judge(torch.cat([self.generate(noise), images]))
        return logits


def _adversaries(at: SmallModel) -> public.Program:
    def inputs() -> public.Inputs:
        return {"noise": torch.randn(at.batch, 64, 1, 1), "images": torch.randn(at.batch, 3, 16, 16),
                "y": torch.cat([torch.zeros(at.batch, 1), torch.ones(at.batch, 1)])}  # fmt: skip

    def loss(run: Callable[..., Any], batch: public.Inputs) -> torch.Tensor:
        logits = run(batch["noise"], batch["images"]).float()
        return F.binary_cross_entropy_with_logits(logits, batch["y"])

    return public.Program(Adversaries(at.hidden), inputs, loss)


class Attentive(nn.Module):
    """A recurrent translator with attention (Luong et al. 2015)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, hidden)
        self.encoder, self.decoder = (nn.GRU(hidden, hidden, batch_first=True) for _ in range(2))
        self.output = nn.Linear(2 * hidden, VOCABULARY)

    def forward(self, tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """[B, S] and [B, T] int64 -> [B, T, V]."""
        memory, state = self.encoder(self.embed(tokens))  # [B, S, H]
        decoded, _ = self.decoder(self.embed(target), state)  # [B, T, H]
        weights = torch.softmax(decoded @ memory.transpose(1, 2), dim=-1)  # [B, T, S]
        logits: torch.Tensor = self.output(torch.cat([weights @ memory, decoded], dim=-1))
        return logits


def _attentive(at: SmallModel) -> public.Program:
    def loss(run: Callable[..., Any], batch: public.Inputs) -> torch.Tensor:
        logits = run(batch["input_ids"], batch["labels"])
        return F.cross_entropy(logits.flatten(0, 1).float(), batch["labels"].flatten(), label_smoothing=0.1)

    return public.Program(Attentive(at.hidden), lambda: public.translation(at), loss)


class Factorization(nn.Module):
    """Factorization machine and deep network over 16 categories (Guo et al. 2017)."""

    def __init__(self, hidden: int, rows: int = 20_000, fields: int = 16) -> None:
        super().__init__()
        self.first, self.vectors = nn.EmbeddingBag(rows, 1, mode="sum"), nn.Embedding(rows, hidden)
        self.deep = nn.Sequential(nn.Linear(fields * hidden, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """[B, fields] int64 -> [B, 1]."""
        vectors = self.vectors(ids)  # [B, fields, H]
        pairs = 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(1, keepdim=True)  # [B, 1]
        result: torch.Tensor = self.first(ids) + pairs + self.deep(vectors.flatten(1))
        return result


def _factorization(at: SmallModel) -> public.Program:
    def inputs() -> public.Inputs:
        return {"x": torch.randint(0, 20_000, (at.batch, 16)), "y": torch.randint(0, 2, (at.batch, 1)).float()}

    def loss(run: Callable[..., Any], batch: public.Inputs) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(run(batch["x"]).float(), batch["y"])

    return public.Program(Factorization(at.hidden), inputs, loss)


SMALL_MODELS: Mapping[str, Callable[[SmallModel], public.Program]] = MappingProxyType({
    "resnet": partial(_classifier, "resnet10t", Settings()),
    "mobilenet": partial(_classifier, "mobilenetv3_small_050", Settings()),
    "regnet": partial(_classifier, "regnetx_002", Settings()),
    "ghostnet": partial(_classifier, "ghostnet_050", Settings()),
    "efficientnet": partial(_classifier, "tinynet_e", Settings()),
    "convnext": _stages,
    "densenet": lambda at: public.classifier(
        "densenet121", {"growth_rate": at.hidden // 4, "block_config": (2, 2, 2, 2)}, at),
    "vit": partial(_classifier, "vit_tiny_patch16_224", PATCHES),
    "swin": _windows,
    "mixer": _mixer,
    "resmlp": _residual_mixer,
    "lraspp": partial(public.segmentation, "lraspp_mobilenet_v3_large"),
    "video": _video,
    "gpt2": partial(_transformers, "GPT2LMHeadModel", GPT, public.text),
    "llama": partial(_transformers, "LlamaForCausalLM", GROUPED, public.text),
    "mixtral": partial(_transformers, "MixtralForCausalLM", EXPERTS, public.text),
    "mamba": partial(_transformers, "MambaForCausalLM", STATE_SPACE, public.text),
    "xlnet": partial(_transformers, "XLNetLMHeadModel", PERMUTED, public.text),
    "bert": partial(_transformers, "BertForMaskedLM", ENCODER, public.text),
    "deberta": partial(_transformers, "DebertaV2ForMaskedLM", RELATIVE, public.text),
    "electra": partial(_transformers, "ElectraForPreTraining", NARROW, lambda at: {  # tokens that were replaced
        "input_ids": public.tokens(at), "labels": torch.randint(0, 2, (at.batch, at.size))}),
    "albert": partial(_transformers, "AlbertForSequenceClassification", NARROW, lambda at: {
        "input_ids": public.tokens(at), "labels": public.labels(at)}),
    "fnet": partial(_transformers, "FNetForMaskedLM", ENCODER, public.text),
    "t5": partial(_transformers, "T5ForConditionalGeneration", T5, public.translation),
    "bart": partial(_transformers, "BartForConditionalGeneration", TWO_STACKS, public.translation),
    "whisper": partial(_transformers, "WhisperForConditionalGeneration", WHISPER,
                       partial(public.speech_to_text, FRAMES)),
    "wav2vec2": lambda at: public.transformers_model(
        "Wav2Vec2ForCTC", WAVES.of(at) | {"conv_dim": (at.hidden,) * 7}, partial(public.sound, 100, 4), at),
    "spectrum": partial(_transformers, "ASTForAudioClassification", SPECTRUM,
                        partial(public.spectra, FRAMES, public.MEL)),
    "patchtst": partial(_transformers, "PatchTSTForPrediction", SERIES, partial(public.series, 24)),
    "segformer": lambda at: public.transformers_model(
        "SegformerForSemanticSegmentation", PYRAMID.of(at) | {"hidden_sizes": [at.hidden, 2 * at.hidden]},
        public.labeled_pixels, at),
    "mae": partial(_transformers, "ViTMAEForPreTraining", MASKED_IMAGES, public.pixels),
    "clip": _clip,
    "gcn": partial(_graph, "GCN"),
    "gat": partial(_graph, "GAT"),
    "graph_sage": partial(_graph, "GraphSAGE"),
    "gin": partial(_graph, "GIN"),
    "edge_cnn": partial(_graph, "EdgeCNN"),
    "gan": _adversaries,
    "seq2seq": _attentive,
    "deepfm": _factorization,
})  # fmt: skip
