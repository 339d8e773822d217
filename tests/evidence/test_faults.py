"""Planted faults that must be found, and legitimate differences that must pass, with the CPU as the device.

Torch functions are patched to be wrong for inputs narrower than float64 only, so that the reference stays right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.model.verdict import Verdict
from tests.support.checking import verdicts
from tests.support.gradients import with_scaled_gradient
from tests.support.writing import entries, write_dump

INPUT = (
    (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1),
)  # fmt: skip
FILTER = (
    (1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1),
)  # fmt: skip
OUTPUT = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))


def winograd(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int, padding: int) -> torch.Tensor:
    """A convolution of 3 x 3 kernels and stride 1, in the dtype of x from step to step."""
    before, kernel, after = (x.new_tensor(table) for table in (INPUT, FILTER, OUTPUT))
    height, width = (size + 2 * padding - 2 for size in x.shape[-2:])
    down, right = -height % 4, -width % 4
    padded = F.pad(x, (padding, padding + right, padding, padding + down))
    tiles = before @ padded.unfold(2, 6, 4).unfold(3, 6, 4) @ before.t()
    products = torch.einsum("nchwij,ocij->nohwij", tiles, kernel @ weight @ kernel.t())
    blocks = after @ products @ after.t()
    out = blocks.permute(0, 1, 2, 4, 3, 5).flatten(4, 5).flatten(2, 3)
    return out[..., :height, :width] + bias.view(-1, 1, 1)


Function = Callable[..., Any]
Patch = Callable[[Function], Function]


def narrow_only(wrong: Callable[..., Any]) -> Patch:
    """A patch that calls wrong(right, *args) for inputs narrower than float64, and right otherwise."""

    def patch(right: Function) -> Function:
        def function(*args: Any, **kwargs: Any) -> Any:
            if args[0].dtype is torch.float64:
                return right(*args, **kwargs)
            return wrong(right, *args, **kwargs)

        return function

    return patch


def after(change: Callable[[torch.Tensor], torch.Tensor]) -> Patch:
    """A patch that changes the result."""
    return narrow_only(lambda right, *args, **kwargs: change(right(*args, **kwargs)))


def tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Rounded to 11 bits, gradients untouched."""
    bits = tensor.detach().view(torch.int32)
    rounded = ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
    return tensor + (rounded - tensor.detach())


def set_element(index: int, factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(tensor.numel(), dtype=tensor.dtype)
        mask[index] = factor
        return tensor * mask.view(tensor.shape)

    return change


def stale_last_row(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor[:-1], tensor[-2:-1]])


def unwritten_tail(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1)
    return torch.cat([flat[:-3], torch.zeros(3, dtype=tensor.dtype)]).view(tensor.shape)


def sequential_matmul(right: Function, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for k in range(a.shape[1]):
        total = total + a[:, k : k + 1] * b[k]
    return total


def split_k(right: Function, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    pieces = zip(a.chunk(8, 1), b.chunk(8, 0), strict=True)
    return sum((right(left, other) for left, other in pieces), torch.zeros((), dtype=a.dtype))


def bfloat16_accumulation(right: Function, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return sequential_matmul(right, a.bfloat16(), b.bfloat16()).to(a.dtype)


def exp2_softmax(right: Function, x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    scaled = torch.exp2((x - x.amax(dim, keepdim=True)) * 1.4426950408889634)
    return scaled / scaled.sum(dim, keepdim=True)


def two_pass_layer_norm(
    right: Function, x: torch.Tensor, shape: Any, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps) * weight + bias


def no_edge(right: Function, x: torch.Tensor, w: torch.Tensor, b: Any, stride: int, padding: int) -> torch.Tensor:
    inner = right(x[..., 1:-1, 1:-1], w, b, stride, 0)
    return F.pad(inner, (2, 2, 2, 2))


def reversed_sum(right: Function, x: torch.Tensor, dim: int) -> torch.Tensor:
    total = torch.zeros(x.shape[:-1], dtype=x.dtype)
    for k in reversed(range(x.shape[-1])):
        total = total + x[..., k]
    return total


def tie_away(right: Function, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A bfloat16 product in float32, rounded with ties away from zero."""
    wide = right(a.float(), b.float()).contiguous()
    bits = wide.view(torch.int32)
    return ((bits + 0x8000) & ~0xFFFF).view(torch.float32).to(torch.bfloat16)


def normal(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(shape, generator=generator) * scale).to(dtype)


HALF = torch.bfloat16
MATMUL = {k: ("Torch.matmul", torch, "matmul", (normal(16, k), normal(k, 8)), False) for k in (64, 256, 4096, 65536)}
HALF_MATMUL = ("Torch.matmul", torch, "matmul", (normal(16, 256, dtype=HALF), normal(256, 8, dtype=HALF)), False)
LAYER_NORM = (
    "Functional.layer_norm", F, "layer_norm", (normal(32, 64), [64], normal(64), normal(64, scale=0.1), 1e-5), True
)  # fmt: skip
CONV = ("Functional.conv2d", F, "conv2d", (normal(2, 3, 10, 10), normal(4, 3, 3, 3), normal(4), 1, 1), True)
DEEP_CONV = (
    "Functional.conv2d", F, "conv2d", (normal(2, 128, 16, 16), normal(64, 128, 3, 3), normal(64), 1, 1), True
)  # fmt: skip
GELU = ("Functional.gelu", F, "gelu", (normal(100, 100),), True)
SOFTMAX = ("Torch.softmax", torch, "softmax", (normal(32, 100), -1), True)
EXP = ("Torch.exp", torch, "exp", (normal(64, 100, dtype=HALF),), False)
DIV = ("Torch.div", torch, "div", (normal(64, 100), normal(64, 100).abs() + 0.5), True)
LINEAR = ("Functional.linear", F, "linear", (normal(16, 64), normal(32, 64), normal(32)), True)
HALF_LINEAR = (
    "Functional.linear", F, "linear",
    (normal(16, 64, dtype=HALF), normal(32, 64, dtype=HALF), normal(32, dtype=HALF)), True,
)  # fmt: skip
SUM = ("Torch.sum", torch, "sum", (normal(16, 4096), -1), True)

to_tf32 = narrow_only(lambda right, a, b, *rest: right(tf32(a), tf32(b), *rest))

FAULTS: dict[str, tuple[Any, Patch, str]] = {
    "TF32 inputs, K = 64": (MATMUL[64], to_tf32, "forward"),
    "TF32 inputs, K = 4,096": (MATMUL[4096], to_tf32, "forward"),
    "TF32 inputs, K = 65,536": (MATMUL[65536], to_tf32, "forward"),
    "TF32 inputs of linear": (LINEAR, to_tf32, "both"),
    "bfloat16 accumulation": (MATMUL[256], narrow_only(bfloat16_accumulation), "forward"),
    "tanh for erf in gelu": (GELU, narrow_only(lambda right, x: right(x, approximate="tanh")), "both"),
    "a stale last row": (SOFTMAX, after(stale_last_row), "both"),
    "an unwritten tail": (GELU, after(unwritten_tail), "both"),
    "eps of 1e-3 in layer_norm": (LAYER_NORM, narrow_only(lambda right, *a: right(*a[:-1], 1e-3)), "both"),
    "a gradient times 1.001": (LINEAR, after(partial(with_scaled_gradient, factor=1.001)), "backward"),
    "one wrong element in 10,000": (GELU, after(set_element(1234, 1.01)), "both"),
    "a missing edge in conv2d": (CONV, narrow_only(no_edge), "both"),
    "softmax times 1.0001": (SOFTMAX, after(lambda x: x * 1.0001), "both"),
    "bfloat16: exp 0.3 % too large": (
        EXP, narrow_only(lambda right, x: (right(x.float()) * 1.003).to(HALF)), "forward"
    ),
    "bfloat16: one element 2 % off": (HALF_LINEAR, after(set_element(77, 1.02)), "both"),
    "bfloat16: all times 1.005": (
        HALF_MATMUL, narrow_only(lambda right, a, b: (right(a.float(), b.float()) * 1.005).to(HALF)), "forward"
    ),
    "bfloat16: the last of 256 terms dropped": (
        HALF_MATMUL, narrow_only(lambda right, a, b: right(a[:, :-1], b[:-1])), "forward"
    ),
}  # fmt: skip

HEALTHY: dict[str, tuple[Any, Patch]] = {
    "split-K": (MATMUL[4096], narrow_only(split_k)),
    "sequential over 4,096": (MATMUL[4096], narrow_only(sequential_matmul)),
    "sequential over 65,536": (MATMUL[65536], narrow_only(sequential_matmul)),
    "softmax by exp2": (SOFTMAX, narrow_only(exp2_softmax)),
    "two-pass layer_norm": (LAYER_NORM, narrow_only(two_pass_layer_norm)),
    "division by the reciprocal": (DIV, narrow_only(lambda right, a, b: a * torch.reciprocal(b))),
    "another order of summation": (SUM, narrow_only(reversed_sum)),
    "convolution by Winograd's F4": (DEEP_CONV, narrow_only(lambda right, *args: winograd(*args))),
    "bfloat16: ties away from zero": (HALF_MATMUL, narrow_only(tie_away)),
    "bfloat16: split-K in float32": (
        HALF_MATMUL, narrow_only(lambda right, a, b: split_k(right, a.float(), b.float()).to(HALF))
    ),
}  # fmt: skip


def dump_of(call: Any, folder: Path) -> Path:
    """A dump of the call, amid others that must not be touched."""
    name, owner, attribute, args, backward = call
    bystanders = entries("Torch.sigmoid.0", torch.sigmoid, normal(8, 8), backward=True)
    bystanders |= entries("Tensor.mul.0", torch.Tensor.mul, normal(8, 8), normal(8, 8), backward=True)
    return write_dump(folder, bystanders | entries(f"{name}.0", getattr(owner, attribute), *args, backward=backward))


# What the error says of it.
CAUSES = {
    "TF32 inputs, K = 64": "behaves as TF32 inputs: ",
    "TF32 inputs, K = 4,096": "behaves as TF32 inputs: ",
    "TF32 inputs, K = 65,536": "behaves as TF32 inputs: ",
    "TF32 inputs of linear": "behaves as TF32 inputs: ",
    "bfloat16 accumulation": "has errors as large as with bfloat16 accumulation: ",
    "tanh for erf in gelu": "as with approximate = 'tanh' instead of the default",
    "a stale last row": "wrong: last row 31 of dim 0; stale: index 31 of dim 0 equals index 30",
    "an unwritten tail": "wrong: elements [99, 97], [99, 98], [99, 99]; zeros, as memory that nothing was written to",
    "eps of 1e-3 in layer_norm": "as with eps = 0.001 instead of 1e-05",
    "a gradient times 1.001": "all times 1.001",
    "one wrong element in 10,000": "wrong: element [12, 34]",
    "a missing edge in conv2d": "wrong: outer 2 of the last 2 dims",
    "softmax times 1.0001": "all times 1.0001",
    "bfloat16: exp 0.3 % too large": "all times 1.003",
    "bfloat16: one element 2 % off": "wrong: element [2, 13]",
    "bfloat16: all times 1.005": "all times 1.005",
}


def patched_verdicts(
    call: Any, patch: Patch, folder: Path, monkeypatch: pytest.MonkeyPatch, **request: Any
) -> dict[str, Verdict]:
    path = dump_of(call, folder)
    monkeypatch.setattr(call[1], call[2], patch(getattr(call[1], call[2])))
    return verdicts(path, **request)


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found_with_its_cause_and_nothing_else(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, patch, directions = FAULTS[fault]
    found = patched_verdicts(call, patch, tmp_path, monkeypatch)
    wanted = {f"{call[0]}.0.{direction}" for direction in ("forward", "backward")}
    assert {found[name].verdict for name in found if name not in wanted} == {"pass"}
    guilty = found[f"{call[0]}.0.{'forward' if directions == 'both' else directions}"]
    assert guilty.verdict == "error"
    words = f"; {CAUSES.get(fault, '')}"
    assert [output.summary for output in guilty.outputs if fault in CAUSES and words not in output.summary] == []


def complaints(found: Mapping[str, Verdict]) -> dict[str, str]:
    """What fails or is warned about, but for warnings of the tools' tables, which long sums exceed."""
    return {
        name: verdict.reason
        for name, verdict in found.items()
        if verdict.verdict != "pass" and "noise passes it" not in verdict.reason
    }


@pytest.mark.parametrize("difference", HEALTHY)
def test_legitimate_difference_passes(difference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complaints(patched_verdicts(*HEALTHY[difference], tmp_path, monkeypatch)) == {}


@pytest.mark.parametrize(
    "call", list({id(call): call for call, *_ in FAULTS.values()}.values()), ids=lambda call: call[0]
)
def test_unpatched_call_passes(call: Any, tmp_path: Path) -> None:
    assert complaints(verdicts(dump_of(call, tmp_path))) == {}


# At exact zeros and zero rows only: generated inputs have them, so these are found.

NORMAL = {"Max": 3.3, "Min": -3.2, "Mean": 0.01, "Norm": 64.0}
RELU = {"Max": 3.3, "Min": 0.0, "Mean": 0.4, "Norm": 45.2}


def write(folder: Path, api: str, statistics: dict[str, Any], *others: Any, shape: tuple[int, ...] = (64, 64)) -> Path:
    """A dump of one call and its backward, of which only usual statistics were kept."""
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [64, 64], "requires_grad": True, **statistics}
    made = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(shape)}
    forward = {"input_args": [tensor, *others], "input_kwargs": {}, "output": [made]}
    gradient = {**made, "Max": 3.0, "Min": -3.0, "Mean": 0.0, "Norm": 64.0}
    return write_dump(
        folder, {f"{api}.0.forward": forward, f"{api}.0.backward": {"input": [gradient], "output": [tensor]}}
    )


def relu(right: Function, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """The gradient is 1 where x is 0."""
    return x * (x >= 0)


def softsign(right: Function, x: torch.Tensor, *args: Any) -> Any:
    """x / x would do for the sign."""
    return x.abs() / x / (1 + x.abs()) * x.abs()


def mean_of_nonzero(right: Function, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """The count of elements is taken to be that of those that are not zero."""
    return x.sum(-1) / x.count_nonzero(-1)


def normalize(right: Function, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Without the eps: NaN for a row of zeros, right to the last digit for others."""
    return x / torch.sqrt((x * x).sum(-1, keepdim=True))


INTEGER = {"type": "int", "value": -1}


@pytest.mark.parametrize(
    ("api", "module", "fault", "statistics", "others", "shape"),
    [
        ("Functional.relu", "nn.functional", relu, NORMAL, (), (64, 64)),
        ("Functional.softsign", "nn.functional", softsign, NORMAL, (), (64, 64)),
        ("Torch.mean", "", mean_of_nonzero, RELU, (INTEGER,), (64,)),
        ("Torch.mean", "", mean_of_nonzero, NORMAL, (INTEGER,), (64,)),
        ("Functional.normalize", "nn.functional", normalize, RELU, (), (64, 64)),
    ],
)
@pytest.mark.parametrize("planted", [True, False])
def test_a_fault_at_a_mass_is_found(
    api: str,
    module: str,
    fault: Function,
    statistics: dict[str, Any],
    others: tuple[Any, ...],
    shape: tuple[int, ...],
    planted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write(tmp_path, api, statistics, *others, shape=shape)
    if planted:
        owner: Any = torch
        for name in module.split(".") if module else ():
            owner = getattr(owner, name)
        name = api.rpartition(".")[2]
        monkeypatch.setattr(owner, name, narrow_only(fault)(getattr(owner, name)))
    found = {verdict.verdict for verdict in verdicts(path).values()}
    assert found == {"pass"} if not planted else "error" in found
