"""Kernels that compute less precisely on purpose, healthy and faulty, as a device named cuda that may do so.

    python benchmarks/mode_kernels.py [--seeds N] [--first N] [--mode tf32] [--call NAME] [--failing] [--device cuda]

Prints how many outputs of healthy kernels pass and how many planted faults are found, by kernel, by call and by fault.
Kernels round operands to nearest, away from zero or by cutting, one operand or both, add up in pieces, transform first
(Winograd), or split operands in two bfloat16 numbers. Arguments are normal, what relu leaves, all positive, of channels
far apart in size, copies of few values, mostly zeros; incoming gradients are 1e-6 small. --device: that device's own
TF32 instead of the kernels, with the same faults.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from msgspec import Struct  # noqa: E402
from msgspec.structs import replace  # noqa: E402

from pytest_probe.check import Checker, RunRequest  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402
from tests.support.devices import Emulated  # noqa: E402

Tensor: TypeAlias = torch.Tensor
Bilinear: TypeAlias = Callable[[Tensor, Tensor], Tensor]
# A fault counts where it moves an element by so many times the RMS of the mode's error there.
VISIBLE = 16
BITS = {"tf32": 11, "hf32": 12, "bf16": 8, "bf16x3": 8}


def rounded(tensor: Tensor, bits: int, how: str) -> Tensor:
    """float64 numbers with that many significand bits."""
    fraction, exponent = torch.frexp(tensor)
    scaled = fraction * 2.0**bits
    if how == "even":
        whole = torch.round(scaled)
    else:
        whole = torch.trunc(scaled + torch.sign(scaled) * (0.5 if how == "away" else 0.0))
    return torch.ldexp(whole, exponent - bits)


class Kernel(Struct, frozen=True):
    """How a device makes a product: how it rounds both operands, in how many pieces it adds up (0: one), and in tiles
    of how many outputs it transforms first (0: not). cut_sums: each piece is cut to float32."""

    name: str
    how: tuple[str, str] = ("even", "even")
    pieces: int = 0
    cut_sums: bool = False
    tiles: int = 0
    split: bool = False

    def operands(self, a: Tensor, b: Tensor, bits: int) -> list[tuple[Tensor, Tensor]]:
        first, second = (rounded(each, bits, how) for each, how in zip((a, b), self.how, strict=True))
        if not self.split:
            return [(first, second)]
        low, other = (rounded(each, bits, how) for each, how in zip((a - first, b - second), self.how, strict=True))
        return [(first, second), (first, other), (low, second)]

    def product(self, call: Call, a: Tensor, b: Tensor, function: Bilinear, axes: tuple[int, int] | None) -> Tensor:
        """function(a, b), which sums over axes of both; None: not to be cut in pieces."""
        parts = self.operands(a, b, call.bits)
        if axes is None or not self.pieces:
            return sum((function(*part) for part in parts), torch.zeros((), dtype=a.dtype)).float().double()
        total: Any = 0.0
        for part in parts:
            length = part[0].shape[axes[0]]
            size = max(1, -(-length // self.pieces))
            for left, right in zip(part[0].split(size, axes[0]), part[1].split(size, axes[1]), strict=True):
                total = total + function(left, right)
                total = rounded(total, 24, "cut") if self.cut_sums else total.float().double()
        return total


class Own(Kernel, frozen=True):
    """A device's own TF32, as torch allows it there."""

    device: str = "cuda"

    def results(self, call: Call, a: Tensor, b: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        left, right = (each.to(self.device, torch.float32).requires_grad_() for each in (a, b))
        with torch.enable_grad():
            out = call.function(left, right)
        parts = torch.autograd.grad(out, (left, right), gradient.to(self.device, torch.float32))
        first, second, third = (each.detach().cpu().double() for each in (out, *parts))
        return first, second, third


KERNELS = (
    Kernel("nearest"),
    Kernel("away", ("away", "away")),
    Kernel("cut", ("cut", "cut")),
    Kernel("one operand cut", ("even", "cut")),
    Kernel("split K in 4", pieces=4),
    Kernel("pieces of float32", pieces=64),
    Kernel("sums cut", pieces=256, cut_sums=True),
    Kernel("cut, sums cut", ("cut", "cut"), pieces=64, cut_sums=True),
    Kernel("F(2,3)", tiles=2),
    Kernel("F(4,3)", tiles=4),
    Kernel("F(2,3) cut", ("cut", "cut"), tiles=2),
    Kernel("two bfloat16", split=True),
)
# Winograd's transforms of tiles of 2 and 4 outputs: of inputs, of kernels and of sums.
TRANSFORMS: Mapping[int, tuple[Any, Any, Any]] = {
    2: (
        ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
        ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
        ((1, 1, 1, 0), (0, 1, -1, -1)),
    ),
    4: (
        ((4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0), (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0),
         (0, 4, 0, -5, 0, 1)),
        ((1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6), (1 / 24, 1 / 12, 1 / 6),
         (1 / 24, -1 / 12, 1 / 6), (0, 0, 1)),
        ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    ),
}  # fmt: skip


class Size(Kernel, frozen=True):
    """Gives in place of a product the RMS of its error, where rounding to nearest goes either way by chance."""

    def product(self, call: Call, a: Tensor, b: Tensor, function: Bilinear, axes: tuple[int, int] | None) -> Tensor:
        bits = 2 * call.bits + 1 if self.split and call.bits == BITS["bf16x3"] else call.bits
        of_a, of_b = (rounded(each, bits, "even") - each for each in (a, b))
        return (function(of_a**2, b**2) + function(a**2, of_b**2)).abs().sqrt()


def _rms(values: Tensor) -> float:
    return float((values**2).mean().sqrt())


def _moves(found: Tensor | None, right: Tensor, size: Tensor) -> bool:
    """Does a fault move an element by what the mode does not hide?"""
    return found is not None and bool(((found - right).abs() > VISIBLE * size + 2.0**-14 * right.abs()).any())


def winograd(kernel: Kernel, call: Call, x: Tensor, weight: Tensor, padding: int) -> Tensor:
    """A convolution of 3 x 3 kernels and stride 1, whose transformed operands the kernel rounds."""
    size = kernel.tiles
    before, filtering, after = (torch.tensor(table, dtype=x.dtype) for table in TRANSFORMS[size])
    height, width = (extent + 2 * padding - 2 for extent in x.shape[-2:])
    padded = F.pad(x, (padding, padding + -width % size, padding, padding + -height % size))
    tiles = before @ padded.unfold(2, size + 2, size).unfold(3, size + 2, size) @ before.t()
    filters = filtering @ weight @ filtering.t()

    def summed(a: Tensor, b: Tensor) -> Tensor:
        return torch.einsum("nchwij,ocij->nohwij", a, b)

    blocks = after @ kernel.product(call, tiles, filters, summed, None) @ after.t()
    return blocks.permute(0, 1, 2, 4, 3, 5).flatten(4, 5).flatten(2, 3)[..., :height, :width].contiguous()


class Call(Struct, frozen=True):
    """A call of two operands: API, reference, further arguments, the shapes of both, and the axes that it sums over, if
    it can be cut there. winograd is the padding of a convolution that may be transformed."""

    name: str
    api: str
    reference: Bilinear
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    axes: tuple[int, int] | None = None
    how: Mapping[str, Any] = {}
    winograd: int | None = None
    bits: int = 11

    def function(self, a: Tensor, b: Tensor) -> Tensor:
        return self.reference(a, b, **self.how)


def convolution(name: str, x: tuple[int, ...], weight: tuple[int, ...], **how: Any) -> Call:
    groups, transposed = how.get("groups", 1), "transpose" in name
    api = "conv_transpose2d" if transposed else f"conv{len(x) - 2}d"
    axes = (1, 0 if transposed else 1) if groups == 1 else None
    plain = not transposed and how.get("stride", 1) == 1 and groups == 1 and weight[2:] == (3, 3)
    padding = how.get("padding", 0) if plain else None
    return Call(name, f"Functional.{api}", getattr(F, api), (x, weight), axes, how, padding)


def matmul(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> Call:
    api, function = ("Torch.matmul", torch.matmul) if len(a) == 2 else ("Torch.bmm", torch.bmm)
    return Call(name, api, function, (a, b), (-1, -2))


CALLS = (
    matmul("matmul K = 8", (24, 8), (8, 40)),
    matmul("matmul K = 64", (32, 64), (64, 48)),
    matmul("matmul K = 512", (16, 512), (512, 100)),
    matmul("matmul K = 8192", (24, 8192), (8192, 12)),
    matmul("matmul of one row", (1, 300), (300, 10)),
    matmul("bmm", (6, 20, 32), (6, 32, 24)),
    Call("linear", "Functional.linear", F.linear, ((8, 640), (100, 640)), (-1, -1)),
    Call("linear, long", "Functional.linear", F.linear, ((200, 256), (64, 256)), (-1, -1)),
    convolution("conv 1x1", (4, 96, 6, 6), (40, 96, 1, 1)),
    convolution("conv 1x1 of a pooled map", (8, 128, 1, 1), (28, 128, 1, 1)),
    convolution("conv 3x3", (2, 32, 14, 14), (24, 32, 3, 3), padding=1),
    convolution("conv 3x3 without padding", (3, 16, 11, 9), (16, 16, 3, 3)),
    convolution("conv 3x3 stride 2", (4, 16, 15, 15), (24, 16, 3, 3), stride=2, padding=1),
    convolution("conv 7x7 stride 2", (2, 3, 33, 33), (16, 3, 7, 7), stride=2, padding=3),
    convolution("conv 2x2 stride 2", (4, 48, 8, 8), (64, 48, 2, 2), stride=2),
    convolution("conv grouped", (2, 24, 12, 12), (36, 6, 3, 3), padding=1, groups=4),
    convolution("conv depthwise", (2, 32, 14, 14), (32, 1, 3, 3), padding=1, groups=32),
    convolution("conv to 1 channel", (2, 32, 12, 12), (1, 32, 3, 3), padding=1),
    convolution("conv transpose", (2, 20, 9, 9), (20, 12, 3, 3), stride=2, padding=1),
    convolution("conv1d", (3, 24, 60), (16, 24, 5), padding=2),
)


def drawn(shape: tuple[int, ...], kind: str, generator: torch.Generator) -> Tensor:
    """Numbers of float32 of a kind."""
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    if kind == "relu":
        values = values.relu()
    elif kind == "positive":
        values = values.abs() + 0.5
    elif kind == "channels":
        spread = torch.rand((1, shape[1], *[1] * (len(shape) - 2)), generator=generator, dtype=torch.float64)
        values = values * 10 ** (6 * spread - 3)
    elif kind == "few values":
        values = (torch.round(values.clamp(-2, 2) * 8) / 8 / 0.226).float().double()
    elif kind == "mostly zeros":
        values = values * (torch.rand(shape, generator=generator) < 0.05)
    elif kind == "tiny":
        values = values * 1e-6
    return values.float().double()


KINDS = ("normal", "relu", "positive", "channels", "few values", "mostly zeros")


class Fault(Struct, frozen=True):
    """Changes one result: given it, the RMS of the mode's error, and a generator. of_operands: changes the operands
    instead."""

    name: str
    change: Callable[[Tensor, Tensor, torch.Generator], Tensor] | None = None
    of_operands: Callable[[Call, Tensor, Tensor], tuple[Tensor, Tensor] | None] | None = None


def _factor(found: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
    return found * (1 + 2.0**-7)


def _row(found: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
    changed = found.clone()
    changed[(0,) * (found.ndim - 1)] = found[(-1,) * (found.ndim - 1)]
    return changed


def _tile(found: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
    changed = found.clone()
    height, width = (max(1, extent // 3) for extent in found.shape[-2:])
    changed[..., -height:, -width:] = 0.0
    return changed


def _where(found: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """A block of elements: so large a part of each dimension."""
    mask = torch.ones(found.shape, dtype=torch.bool)
    for axis, extent in enumerate(found.shape):
        size = max(1, round(extent * share))
        start = int(torch.randint(extent - size + 1, (1,), generator=generator))
        index = torch.arange(extent)
        line = ((index >= start) & (index < start + size)).view(
            *[-1 if axis == each else 1 for each in range(found.ndim)]
        )
        mask &= line
    return mask


def _region(found: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
    mask = _where(found, 0.5, generator)
    noise = torch.randn(found.shape, generator=generator, dtype=torch.float64)
    return torch.where(mask, found + 8 * size * noise, found)


def _row_by_8(found: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
    mask = torch.zeros(found.shape, dtype=torch.bool)
    axis = max(range(found.ndim), key=lambda each: found.shape[each])
    mask.select(axis, found.shape[axis] // 2)[...] = True
    noise = torch.randn(found.shape, generator=generator, dtype=torch.float64)
    return torch.where(mask, found + 8 * size * noise, found)


def _element(found: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
    flat, place = found.clone().view(-1), int(torch.randint(found.numel(), (1,), generator=generator))
    flat[place] += 32 * float(size.view(-1)[place])
    return flat.view(found.shape)


def _without_last_block(call: Call, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor] | None:
    if call.axes is None:
        return None
    changed, axis = a.clone(), call.axes[0] % a.ndim
    length = a.shape[axis]
    changed.narrow(axis, length - max(1, length // 16), max(1, length // 16))[...] = 0.0
    return changed, b


def _swapped(call: Call, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor] | None:
    if b.shape[0] < 2:
        return None
    order = list(range(b.shape[0]))
    order[0], order[1] = 1, 0
    return a, b[order]


def _missing_tap(call: Call, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor] | None:
    if "conv" not in call.api or b.shape[-1] < 2:
        return None
    changed = b.clone()
    changed[..., -1] = 0.0 if b.ndim == 3 else changed[..., -1] * 0.0
    return a, changed


FAULTS = (
    Fault("factor 1 + 2^-7", _factor),
    Fault("a stale row", _row),
    Fault("a tile of zeros", _tile),
    Fault("a region, 8 times the mode's RMS", _region),
    Fault("a slice, 8 times the mode's RMS", _row_by_8),
    Fault("one element, 32 times the mode's RMS", _element),
    Fault("the last block of K missing", of_operands=_without_last_block),
    Fault("swapped channels", of_operands=_swapped),
    Fault("a missing tap", of_operands=_missing_tap),
)


def results(kernel: Kernel, call: Call, a: Tensor, b: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The output and both gradients by a kernel, in float64 with the digits of float32."""
    if isinstance(kernel, Own):
        return kernel.results(call, a, b, gradient)

    def gradient_of(place: int) -> Tensor:
        def function(g: Tensor, other: Tensor) -> Tensor:
            operands = [torch.zeros_like(a), torch.zeros_like(b)]
            operands[1 - place] = other
            operands[place].requires_grad_()
            with torch.enable_grad():
                out = call.function(*operands)
            (found,) = torch.autograd.grad(out, operands[place], g)
            return found

        return kernel.product(call, gradient, (b, a)[place], function, None)

    if kernel.tiles and call.winograd is not None:
        of_a = winograd(kernel, call, gradient, b.transpose(0, 1).flip(2, 3), 2 - call.winograd)
        return winograd(kernel, call, a, b, call.winograd), of_a, gradient_of(1)
    return kernel.product(call, a, b, call.function, call.axes), gradient_of(0), gradient_of(1)


Results: TypeAlias = Sequence[Tensor | None]


class Case(Struct, frozen=True):
    """One call with its arguments: what a kernel and a fault make of it is judged forward and backward."""

    call: Call
    kind: str
    seed: int

    def outcomes(self, checker: Checker, kernel: Kernel, fault: Fault | None) -> dict[str, str]:
        """What is said of each result; empty where the fault does not apply."""
        generator = torch.Generator().manual_seed(1000 * self.seed + len(self.kind))
        a = drawn(self.call.shapes[0], self.kind, generator)
        like = self.kind if self.kind in ("positive", "few values") else "normal"
        b = (drawn(self.call.shapes[1], like, generator) / 13).float().double()
        gradient = drawn(tuple(self.call.function(a, b).shape), "tiny", generator)
        operands = a, b, gradient
        healthy = results(kernel, self.call, *operands)
        found: Results = healthy
        exact = results(Kernel("exact"), replace(self.call, bits=53), *operands)
        sizes = [
            size * max(1.0, _rms(made - right) / max(_rms(size), 1e-300))
            for size, made, right in zip(
                results(Size("size", split=kernel.split), self.call, *operands), healthy, exact, strict=True
            )
        ]
        if fault is not None and fault.change is not None:
            found = [fault.change(each, size, generator) for each, size in zip(healthy, sizes, strict=True)]
        elif fault is not None and fault.of_operands is not None:
            x, y = fault.of_operands(self.call, a, b) or (a, b)
            wrong = results(kernel, self.call, x, y, gradient)
            # A gradient does not hang on its own operand.
            found = wrong[0], None if y is b else wrong[1], None if x is a else wrong[2]
        if fault is not None:
            found = [
                each if _moves(each, right, size) else None
                for each, right, size in zip(found, healthy, sizes, strict=True)
            ]
        return self._judged(checker, operands, found) if any(each is not None for each in found) else {}

    def _judged(self, checker: Checker, operands: tuple[Tensor, ...], found: Results) -> dict[str, str]:
        a, b, gradient = (each.float() for each in operands)
        out, *parts = (zeros if each is None else each.float() for each, zeros in zip(found, (a, a, b), strict=True))

        class Device(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
                return out.clone()

            @staticmethod
            def backward(ctx: Any, incoming: Tensor) -> Any:
                return tuple(part.clone() for part in parts)

        verdicts = checker.compare(
            lambda x, y, **how: Device.apply(x, y),
            self.call.reference,
            (a, b),
            self.call.how,
            api=self.call.api,
            gradients=(gradient,),
            backward=True,
        )
        names = ("output.0", "grad.input.0", "grad.input.1")
        asked = {name for name, each in zip(names, found, strict=True) if each is not None}
        outputs = [output for verdict in verdicts for output in verdict.outputs if output.name in asked]
        return {output.name: f"{output.verdict}: {output.reason}" for output in outputs}


class Count(Struct):
    right: int = 0
    all: int = 0

    def __str__(self) -> str:
        return f"{self.right:,} of {self.all:,}, {100 * self.right / max(self.all, 1):.2f} %"


def kernels_for(call: Call, mode: str, device: str | None) -> Iterator[Kernel]:
    if device:
        yield Own("its own", device=device)
        return
    for kernel in KERNELS:
        if kernel.tiles and call.winograd is None:
            continue
        if mode == "bf16x3":
            kernel = replace(kernel, split=True)
        if kernel.split and mode not in ("bf16x3", "tf32"):
            continue
        yield kernel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--mode", choices=BITS, default="tf32")
    parser.add_argument("--call", default="")
    parser.add_argument("--kernel", default="")
    parser.add_argument("--fault", default="")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases, drawn by the seed")
    parser.add_argument("--failing", action="store_true", help="list what is wrong")
    parser.add_argument("--device", help="its own kernels, as cuda has them")
    parser.add_argument("--only", choices=["healthy", "faults"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    registry = Registry.default()
    registry.devices["cuda"] = Emulated
    checker = Checker(RunRequest(device="cuda", allow=(options.mode,), diagnosed=False), registry)
    table: dict[tuple[str, str], Count] = defaultdict(Count)
    for seed in range(options.first, options.first + options.seeds):
        chosen = random.Random(seed)
        for number, call in enumerate(CALLS):
            if options.call not in call.name:
                continue
            for kind in KINDS:
                case = Case(replace(call, bits=BITS[options.mode]), kind, seed)
                kernels = list(kernels_for(call, options.mode, options.device))
                for kernel in kernels if options.only != "faults" else ():
                    if options.kernel in kernel.name and chosen.random() < options.share:
                        tell(options, table, case, kernel, None, case.outcomes(checker, kernel, None))
                for place, fault in enumerate(FAULTS if options.only != "healthy" else ()):
                    if options.fault in fault.name and chosen.random() < options.share:
                        kernel = kernels[(place + seed + number) % len(kernels)]
                        tell(options, table, case, kernel, fault, case.outcomes(checker, kernel, fault))
    print("| | healthy that pass, faults that are found |")
    print("|---|---|")
    for (what, name), count in table.items():
        print(f"| {what} {name} | {count} |")


def tell(
    options: argparse.Namespace,
    table: dict[tuple[str, str], Count],
    case: Case,
    kernel: Kernel,
    fault: Fault | None,
    found: Mapping[str, str],
) -> None:
    for name, said in found.items():
        right = said.startswith("pass" if fault is None else "error")
        keys = [("kernel", kernel.name), ("healthy", case.call.name)] if fault is None else [("fault", fault.name)]
        for key in [*keys, ("all", "healthy" if fault is None else "faults")]:
            table[key].all += 1
            table[key].right += right
        if options.failing and not right:
            what = "" if fault is None else fault.name
            print(
                "-", case.call.name, "|", case.kind, case.seed, "|", kernel.name, "|", what, "|", name, said, flush=True
            )


if __name__ == "__main__":
    main()
