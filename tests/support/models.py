"""Small models of every kind, each with one training step."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Step = Callable[[], torch.Tensor]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(self.first(x)).split(16, dim=-1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + F.dropout(self.down(F.gelu(self.up(self.second(x)), approximate="tanh")), 0.1)


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(32, 16), nn.Embedding(8, 16)
        self.blocks, self.last = nn.Sequential(Block(), Block()), nn.LayerNorm(16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.tokens(tokens) + self.places(torch.arange(8)))
        return F.linear(self.last(x), self.tokens.weight)


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Step) -> Step:
    def step() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return value

    return step


def gpt() -> Step:
    model, tokens = GPT(), torch.randint(0, 32, (2, 8))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, foreach=True)
    return trained(model, optimizer, lambda: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()))


def cnn() -> Step:
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.ConvTranspose2d(8, 4, 2, 2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5)),
    )
    x, y = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last), torch.randint(0, 5, (4,))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    return trained(model, optimizer, lambda: F.nll_loss(F.log_softmax(model(x), dim=1), y))


def lstm() -> Step:
    model, head, x = nn.LSTM(4, 8, 2, batch_first=True), nn.Linear(8, 1), torch.randn(3, 5, 4)
    both = nn.ModuleList([model, head])
    return trained(
        both, torch.optim.Adam(both.parameters(), fused=True), lambda: head(model(x)[0][:, -1]).square().mean()
    )


def autocast() -> Step:
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    x, y = torch.randn(6, 8), torch.randint(0, 4, (6,))

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(model(x), y)

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-2), loss)


def detection() -> Step:
    model, boxes = nn.Linear(4, 5), torch.rand(12, 4)

    def loss() -> torch.Tensor:
        out = model(boxes)
        scores, deltas = out[:, 0].sigmoid(), out[:, 1:].clone()
        keep = scores > 0.4
        keep[:2] = True
        deltas[keep] *= 0.5
        order = scores[keep].argsort(descending=True)[:3]
        deltas[0, 1] = 0.0
        area = (deltas[..., 2] - deltas[..., 0]).clamp(min=0.1)
        return torch.where(keep, scores, area).sum() + deltas[keep][order].abs().mean()

    return trained(model, torch.optim.SGD(model.parameters(), 1e-2), loss)


def spectral() -> Step:
    weight = nn.Parameter(torch.randn(9, dtype=torch.complex64))
    model = nn.ParameterList([weight])
    x = torch.randn(4, 16)

    def loss() -> torch.Tensor:
        z = torch.fft.rfft(x, dim=-1) * weight * (1 + 0.5j)
        matrix = torch.fft.irfft(z, n=16)
        spread = torch.linalg.slogdet(matrix @ matrix.T + 3 * torch.eye(4))[1]
        return matrix.square().mean() + z.abs().mean() + 1e-3 * spread + torch.view_as_real(z).sum() * 1e-3

    return trained(model, torch.optim.SGD(model.parameters(), 1e-2), loss)


ALL: dict[str, Callable[[], Step]] = {
    "gpt": gpt, "cnn": cnn, "lstm": lstm, "autocast": autocast, "detection": detection, "spectral": spectral,
}  # fmt: skip
