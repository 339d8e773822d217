"""Models of torchvision, timm and Transformers: made from a configuration alone, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

# What a model is, and what makes its loss.
Made = tuple[torch.nn.Module, Callable[[], torch.Tensor]]
# What is defined goes when its library does.
_KEPT: list[torch.library.Library] = []
BATCH = 2
TOKENS = 64
VOCABULARY = 1000

TORCHVISION = {
    "resnet18": 64, "resnet50": 64, "vgg11": 64, "densenet121": 64, "mobilenet_v3_small": 64, "efficientnet_b0": 64,
    "convnext_tiny": 64, "swin_t": 64, "vit_b_32": 224, "regnet_y_400mf": 64, "shufflenet_v2_x0_5": 64,
    "squeezenet1_1": 64,
}  # fmt: skip
TIMM = {
    "mixer_s32_224": 224, "deit_tiny_patch16_224": 224, "levit_128s": 224, "poolformer_s12": 64, "ghostnet_100": 64,
    "mobilevit_xxs": 64, "repvgg_a0": 64, "resnest14d": 64,
}  # fmt: skip
_SMALL = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
_DECODER = {**_SMALL, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 128, "pad_token_id": 0}
# By the name of a configuration: the class for its loss, and what makes it small.
TRANSFORMERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("AutoModelForMaskedLM", _SMALL),
    "roberta": ("AutoModelForMaskedLM", {**_SMALL, "max_position_embeddings": 130}),
    "distilbert": ("AutoModelForMaskedLM", {"dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 256}),
    "electra": ("AutoModelForMaskedLM", {**_SMALL, "embedding_size": 64}),
    "albert": ("AutoModelForMaskedLM", {**_SMALL, "embedding_size": 64}),
    "deberta-v2": ("AutoModelForMaskedLM", {**_SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "gpt2": ("AutoModelForCausalLM", {"n_embd": 128, "n_layer": 2, "n_head": 4}),
    "llama": ("AutoModelForCausalLM", _DECODER),
    "mistral": ("AutoModelForCausalLM", {**_DECODER, "sliding_window": 16}),
    "qwen3": ("AutoModelForCausalLM", _DECODER),
    "gemma2": ("AutoModelForCausalLM", {**_DECODER, "query_pre_attn_scalar": 32}),
    "mixtral": ("AutoModelForCausalLM", {**_DECODER, "num_local_experts": 4}),
    "mamba": ("AutoModelForCausalLM", {"hidden_size": 128, "num_hidden_layers": 2, "state_size": 8}),
    "t5": (
        "AutoModelForSeq2SeqLM",
        {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0},
    ),
}


def names() -> list[str]:
    return [*TORCHVISION, *TIMM, *TRANSFORMERS]


def training(name: str) -> tuple[int, Callable[[], None]]:
    """How many parameters a model has, and a training step of it: forward, backward and AdamW."""
    _define_operators()  # all three libraries import torchvision
    torch.manual_seed(0)
    model, loss = _vision(name) if name in TORCHVISION or name in TIMM else _language(name)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return sum(parameter.numel() for parameter in model.parameters()), step


def _vision(name: str) -> Made:
    if name in TORCHVISION:
        import torchvision

        model = torchvision.models.get_model(name, weights=None)
    else:
        import timm

        model = timm.create_model(name, pretrained=False)
    size = TORCHVISION.get(name) or TIMM[name]
    images, labels = torch.randn(BATCH, 3, size, size), torch.arange(BATCH)

    def loss() -> torch.Tensor:
        found = model(images)
        # levit gives those of two heads while it trains.
        heads = found if isinstance(found, tuple) else (found,)
        return sum((F.cross_entropy(head, labels) for head in heads), torch.zeros(()))

    return model, loss


def _define_operators() -> None:
    """PyPI has torchvision for CUDA alone: beside a torch for the CPU its operators cannot be loaded, and without these
    two it cannot be imported. No model here calls them."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT.append(library)


def _language(name: str) -> Made:
    import transformers

    kind, small = TRANSFORMERS[name]
    config = transformers.AutoConfig.for_model(name, vocab_size=VOCABULARY, **small)
    model = getattr(transformers, kind).from_config(config)
    tokens = torch.randint(3, VOCABULARY, (BATCH, TOKENS))
    return model, lambda: model(input_ids=tokens, labels=tokens).loss
