"""What a device computes in the calls that failed first on a GPU, as dumps with tensors of a few MB:

    python benchmarks/gpu_outputs.py DIR [--device cuda]
    pytest --probe-dump=DIR --probe-device=recorded

The second command needs no GPU. Each part is recorded forward and backward in float32, under autocast to bfloat16 and
float16, and some in bfloat16 alone; products of matrices as TF32 as well. Prints the calls that the device refused.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from pytest_probe import capture

Call = Callable[[], torch.Tensor]


class Tensors:
    """Draws the tensors of one part, the same on each device. own is the dtype of what a layer gets from the one before
    it: that of the autocast, if there is one."""

    def __init__(self, device: str, dtype: torch.dtype, own: torch.dtype) -> None:
        self.device, self.dtype, self.own_dtype = device, dtype, own
        self.generator = torch.Generator().manual_seed(1)

    def __call__(self, *shape: int, scale: float = 1.0, grad: bool = True) -> torch.Tensor:
        drawn = torch.randn(shape, generator=self.generator) * scale
        return drawn.to(self.device, self.dtype).requires_grad_(grad)

    def own(self, *shape: int, scale: float = 1.0, grad: bool = True) -> torch.Tensor:
        return self(*shape, scale=scale, grad=False).to(self.own_dtype).requires_grad_(grad)

    def whole(self, below: int, *shape: int) -> torch.Tensor:
        return torch.randint(below, shape, generator=self.generator).to(self.device)


def convolutions(made: Tensors) -> Iterator[Call]:
    x = made.own(2, 16, 8, 8)
    for window in (1, 3, 7):
        yield partial(F.conv2d, x, made(8, 16, window, window, scale=0.1), made(8), padding=window // 2)
    for settings in ({"stride": 2}, {"stride": 2, "padding": 1}, {"dilation": 2}):
        yield partial(F.conv2d, x, made(12, 16, 3, 3, scale=0.1), None, **settings)
    yield partial(F.conv2d, x, made(16, 4, 3, 3, scale=0.2), None, groups=4, padding=1)
    yield partial(F.conv2d, x, made(16, 1, 3, 3, scale=0.3), None, groups=16, padding=1)
    last = x.detach().to(memory_format=torch.channels_last).requires_grad_()
    yield partial(F.conv2d, last, made(12, 16, 3, 3, scale=0.1))
    yield partial(F.conv_transpose2d, x, made(16, 8, 4, 4, scale=0.1), None, stride=2, padding=1)
    yield partial(F.conv2d, made.own(2, 64, 1, 1), made(16, 64, 1, 1, scale=0.1), made(16))
    yield partial(F.conv1d, made.own(2, 16, 40), made(16, 16, 5, scale=0.1), padding=2)


def products(made: Tensors) -> Iterator[Call]:
    yield partial(F.linear, made.own(4, 12, 64), made(48, 64, scale=0.1), made(48))
    yield partial(F.linear, made.own(8, 384), made(24, 384, scale=0.05), made(24))
    yield partial(torch.matmul, made.own(2, 24, 32), made.own(2, 32, 24))
    yield partial(torch.einsum, "bhid,bhjd->bhij", made.own(2, 4, 16, 32), made.own(2, 4, 16, 32))


def activations(made: Tensors) -> Iterator[Call]:
    functions = (torch.sigmoid, torch.tanh, F.gelu, F.silu, F.softplus, F.mish, F.hardswish, F.elu)
    for function in (*functions, partial(F.softmax, dim=1), partial(F.log_softmax, dim=1)):
        for shape in ((8, 32, 1, 1), (4, 30, 8)):
            yield partial(function, made.own(*shape))


def losses(made: Tensors) -> Iterator[Call]:
    x, labels = made.own(32, 30), made.whole(30, 32)
    shares, other = F.softmax(made(32, 30, grad=False), -1), made(32, 30, grad=False)
    yield partial(F.cross_entropy, x, labels)
    yield partial(F.cross_entropy, x, labels, label_smoothing=0.1)
    yield partial(F.cross_entropy, x, labels.masked_fill(labels < 5, -100), reduction="sum")
    yield partial(F.cross_entropy, x, shares)
    yield partial(F.nll_loss, F.log_softmax(x.detach(), -1).requires_grad_(), labels)
    yield partial(F.kl_div, F.log_softmax(x.detach(), -1).requires_grad_(), shares, reduction="batchmean")
    for loss in (F.binary_cross_entropy_with_logits, F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        yield partial(loss, x, shares if loss is F.binary_cross_entropy_with_logits else other)
    yield partial(F.cosine_embedding_loss, x, other, torch.ones(32, device=made.device))


def attention(made: Tensors) -> Iterator[Call]:
    """Every backend: without a mask, with one that is constant, with one that is trained; of 37 keys as well."""
    backends = (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION)
    for backend in backends:
        for keys in (32, 37):
            q, k, v = (made.own(2, length, 1, 8).transpose(1, 2).detach() for length in (16, keys, keys))
            call = partial(_attention, backend, q.requires_grad_(), k.requires_grad_(), v.requires_grad_())
            yield call
            yield partial(call, attn_mask=made.own(1, 1, 16, keys, grad=False).expand(2, -1, -1, -1))
            yield partial(call, attn_mask=made.own(2, 1, 16, keys))
        yield partial(call, is_causal=True)


def _attention(backend: SDPBackend, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **settings: Any) -> torch.Tensor:
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, **settings)


def norms(made: Tensors) -> Iterator[Call]:
    x, rows = made.own(3, 16, 6, 6), made.own(6, 10, 32)
    for weight, bias in ((made(16), made(16)), (None, None)):
        for training in (True, False):
            mean, variance = made(16, grad=False), made(16, grad=False).square()
            yield partial(F.batch_norm, x, mean, variance, weight, bias, training)
        yield partial(F.group_norm, x, 4, weight, bias)
        yield partial(F.instance_norm, x, weight=weight, bias=bias)
    yield partial(F.layer_norm, rows, (32,), made(32), made(32))
    yield partial(F.rms_norm, rows, (32,), made(32))


def indices(made: Tensors) -> Iterator[Call]:
    weight, tokens = made.own(50, 16), made.whole(50, 4, 24)
    yield partial(F.embedding, tokens, weight)
    yield partial(F.embedding, tokens, weight, padding_idx=3)
    yield partial(F.embedding_bag, tokens, weight, mode="sum")
    places, source = made.whole(20, 60), made.own(60, 16)
    yield partial(torch.index_add, made.own(20, 16), 0, places, source)
    yield partial(torch.scatter_add, made.own(20, 16), 0, places[:, None].expand(-1, 16), source)
    yield partial(torch.index_select, weight, 0, places)
    for scan in (torch.cumsum, torch.cumprod, torch.logcumsumexp):
        yield from (partial(scan, made.own(5, 70), dim) for dim in (0, 1))
    yield partial(torch.histc, made.whole(8, 64, 2).int(), 8, 0, 7)


PARTS: tuple[Callable[[Tensors], Iterator[Call]], ...] = (
    convolutions,
    products,
    activations,
    losses,
    attention,
    norms,
    indices,
)


class Precision(NamedTuple):
    """The dtype of weights, that of autocast, and what is recorded; products: may they be TF32? Convolutions may, as
    torch has it."""

    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    parts: Sequence[Callable[[Tensors], Iterator[Call]]] = PARTS
    products: bool = False


PRECISIONS = {
    "float32": Precision(),
    "bfloat16": Precision(autocast=torch.bfloat16),
    "float16": Precision(autocast=torch.float16),
    "tf32": Precision(parts=[products], products=True),
    "bfloat16-alone": Precision(torch.bfloat16, parts=[products, activations, losses, norms, indices]),
}


def gradient(result: torch.Tensor, place: int, made: Tensors) -> torch.Tensor:
    """A result's gradient: in order, as that of a sum, or transposed, one after the other."""
    drawn = made(*result.shape, grad=False).to(result.dtype)
    if place % 3 == 1:
        return drawn.sum().expand(result.shape)
    return drawn.transpose(0, -1).contiguous().transpose(0, -1) if place % 3 == 2 and drawn.dim() else drawn


def recorded(part: Callable[[Tensors], Iterator[Call]], precision: str, device: str, folder: Path) -> Iterator[str]:
    """Record a part in a precision; gives what the device refused."""
    dtype, autocast, _, products = PRECISIONS[precision]
    made = Tensors(device, dtype, autocast or dtype)
    torch.set_float32_matmul_precision("high" if products else "highest")

    def run(place: int, call: Call, incoming: torch.Tensor | None = None) -> torch.Tensor | None:
        """Forward and backward; the incoming gradient, which is drawn where none is given."""
        with torch.autocast(torch.device(device).type, autocast, enabled=autocast is not None):
            result = call()
        if result.requires_grad:
            incoming = gradient(result, place, made) if incoming is None else incoming
            result.backward(incoming)
        return incoming

    # Once before, so that libraries have chosen their kernels.
    calls: list[tuple[int, Call, torch.Tensor | None]] = []
    for place, call in enumerate(part(made)):
        with suppress(RuntimeError):
            calls.append((place, call, run(place, call)))
            continue
        yield f"{part.__name__} {place}"
    with capture(folder / f"{part.__name__}-{precision}", task="tensor"):
        for each in calls:
            run(*each)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    for precision, how in PRECISIONS.items():
        for part in how.parts:
            refused = list(recorded(part, precision, options.device, options.folder))
            print(f"{precision}: refused: {', '.join(refused)}") if refused else None


if __name__ == "__main__":
    main()
