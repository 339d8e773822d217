"""Pipelines of kernels that round to 16 bit between two of them pass where those borders are named, and their faults
are found."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pytest
import torch
import torch.nn.functional as F
from msgspec import Struct

from pytest_probe.check import Checker, RunRequest
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.support.devices import Emulated

Tensor = torch.Tensor
Step: TypeAlias = Callable[[Tensor], Tensor]
CHUNK = 16
# Three chunks: each of the faults shows in them.
TOKENS = 48


class Pipeline(Struct, frozen=True):
    """kernel(narrow, *arguments) on float32 arguments gives the outputs of the pipeline before their last rounding;
    faults are keyword arguments of it. borders(border, *arguments) is the reference with its borders."""

    reference: Callable[..., Tensor]
    borders: Callable[..., Tensor]
    kernel: Callable[..., Tensor]
    faults: Mapping[str, Mapping[str, Any]]
    inputs: Callable[[torch.Generator, torch.dtype], Sequence[Tensor]]
    wide: bool = False

    def function(self, **fault: Any) -> Callable[..., Tensor]:
        """The pipeline as a device runs it."""

        def run(*args: Tensor) -> Tensor:
            dtype = args[0].dtype
            floats = (value.float() if value.is_floating_point() else value for value in args)
            result = self.kernel(lambda tensor: tensor.to(dtype).float(), *floats, **fault)
            return result if self.wide else result.to(dtype)

        return run

    def bordered(self, border: Step) -> Callable[..., Tensor]:
        return functools.partial(self.borders, border)


def normal(generator: torch.Generator, dtype: torch.dtype, *shape: int, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, generator=generator) * scale).to(dtype)


# Attention of heads over packed sequences: [tokens, heads, width].


def weighed(step: Step, q: Tensor, k: Tensor, v: Tensor, factor: float = 1.0) -> Tensor:
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return step(weights) @ v * factor / weights.sum(-1, keepdim=True)


# Flash attention: [heads, tokens, width], by blocks of keys with a running maximum.


def flash_kernel(
    step: Step, q: Tensor, k: Tensor, v: Tensor, factor: float = 1.0, rescale: bool = True, blocks: int | None = None
) -> Tensor:
    largest = q.new_full((*q.shape[:-1], 1), -torch.inf)
    total, found = torch.zeros_like(largest), torch.zeros_like(q)
    for keys, values in list(zip(k.split(CHUNK, -2), v.split(CHUNK, -2), strict=True))[:blocks]:
        scores = q @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5
        higher = torch.maximum(largest, scores.amax(-1, keepdim=True))
        weights, before = torch.exp(scores - higher), torch.exp(largest - higher)
        total = total * before + weights.sum(-1, keepdim=True)
        found = found * (before if rescale else 1.0) + step(weights) @ values * factor
        largest = higher
    return found / total


# A state h = a h + k v, read by q: Mamba-2's scan (a decay in float32 at each step), retention (one a head).


def recurrent(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, dtype: torch.dtype) -> Tensor:
    """decay is of each token, or of each key's element. It rounds nothing to 16 bit."""
    q, k, wide, decay = (tensor.to(dtype) for tensor in (q, k, v, decay))
    decay = decay[..., None] if decay.ndim < k.ndim else decay
    state, found = torch.zeros_like(k[:, 0, :, None] * wide[:, 0, None, :]), []
    for at in range(q.shape[1]):
        state = torch.exp(decay[:, at, :, None]) * state + k[:, at, :, None] * wide[:, at, None, :]
        found.append((q[:, at, None, :] @ state)[:, 0])
    return torch.stack(found, 1).to(v.dtype)


def scan_reference(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
    """In the dtype of the decay, as public references of Mamba-2 are written."""
    return recurrent(q, k, v, decay, decay.dtype)


def scan_kernel(
    step: Step,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    factor: float = 1.0,
    lost: int = -1,
    rescale: bool = True,
) -> Tensor:
    state = torch.zeros(q.shape[0], k.shape[-1], v.shape[-1], dtype=decay.dtype, device=q.device)
    found = []
    for index, first in enumerate(range(0, q.shape[1], CHUNK)):
        q_now, k_now, v_now, d_now = (tensor[:, first : first + CHUNK] for tensor in (q, k, v, decay))
        sums = d_now.cumsum(1)
        mask = torch.ones(sums.shape[1], sums.shape[1], dtype=torch.bool, device=q.device).tril()
        between = torch.where(mask, sums[:, :, None] - sums[:, None, :], -torch.inf)
        weights = step(q_now @ k_now.transpose(1, 2) * torch.exp(between))
        before = torch.zeros_like(state) if index == lost else step(state)
        found.append(weights @ v_now * factor + torch.exp(sums)[..., None] * (q_now @ before))
        rest = torch.exp(sums[:, -1:] - sums)[..., None]
        added = (step(k_now * rest)).transpose(1, 2) @ v_now
        state = (torch.exp(sums[:, -1])[:, None, None] if rescale else 1.0) * state + added
    return torch.cat(found, 1)


def gated_reference(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Tensor:
    """In float32, as public references are written."""
    return recurrent(q, k, v, gate, torch.float32)


def gated_kernel(
    step: Step,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor,
    factor: float = 1.0,
    lost: int = -1,
    rescale: bool = True,
) -> Tensor:
    state = torch.zeros(q.shape[0], k.shape[-1], v.shape[-1], dtype=q.dtype, device=q.device)
    found = []
    for index, first in enumerate(range(0, q.shape[1], CHUNK)):
        q_now, k_now, v_now, g_now = (tensor[:, first : first + CHUNK] for tensor in (q, k, v, gate))
        sums = g_now.cumsum(1)
        read, written = step(q_now * torch.exp(sums)), step(k_now * torch.exp(-sums))
        weights = step((read @ written.transpose(1, 2)).tril())
        before = torch.zeros_like(state) if index == lost else step(state)
        found.append(weights @ v_now * factor + read @ before)
        added = step(k_now * torch.exp(sums[:, -1:] - sums)).transpose(1, 2) @ v_now
        state = (torch.exp(sums[:, -1])[:, :, None] if rescale else 1.0) * state + added
    return torch.cat(found, 1)


def entropy_reference(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x.float() @ weight.float(), target, reduction="none")


def entropy_kernel(
    step: Step, x: Tensor, weight: Tensor, target: Tensor, factor: float = 1.0, lost: int = 0, other: int = 0
) -> Tensor:
    logits = step(x @ weight)
    total = torch.logsumexp(logits[:, lost:], -1)
    return total * factor - logits.gather(1, ((target + other) % weight.shape[1])[:, None])[:, 0]


def flash_inputs(generator: torch.Generator, dtype: torch.dtype) -> Sequence[Tensor]:
    return [normal(generator, dtype, 4, 64, 32, scale=scale) for scale in (2.0, 1.0, 1.0)]


def scan_inputs(generator: torch.Generator, dtype: torch.dtype) -> Sequence[Tensor]:
    sides = [normal(generator, dtype, 4, TOKENS, 16, scale=scale) for scale in (0.25, 1.0)]
    return [*sides, normal(generator, dtype, 4, TOKENS, 32), -0.1 * torch.rand(4, TOKENS, generator=generator)]


def gated_inputs(generator: torch.Generator, dtype: torch.dtype) -> Sequence[Tensor]:
    gate = (-0.1 * torch.rand(4, TOKENS, 16, generator=generator)).to(dtype)
    return [*scan_inputs(generator, dtype)[:3], gate]


def of_shapes(*shapes: tuple[int, ...]) -> Callable[[torch.Generator, torch.dtype], Sequence[Tensor]]:
    """Matrices whose products have about the size of their first factor."""
    return lambda generator, dtype: [
        normal(generator, dtype, *shape, scale=1.0 if number == 0 else shape[-2] ** -0.5)
        for number, shape in enumerate(shapes)
    ]


def entropy_inputs(generator: torch.Generator, dtype: torch.dtype) -> Sequence[Tensor]:
    x, weight = of_shapes((96, 64), (64, 200))(generator, dtype)
    return [x * 4, weight, torch.randint(200, (96,), generator=generator)]


LOUD = {"factor": 1.01}
PIPELINES: Mapping[str, Pipeline] = {
    "flash attention": Pipeline(
        F.scaled_dot_product_attention,
        weighed,
        flash_kernel,
        {"weights times 1.01": LOUD, "not rescaled": {"rescale": False}, "the last block lost": {"blocks": 3}},
        flash_inputs,
    ),
    "chunked scan with a float32 decay": Pipeline(
        scan_reference,
        scan_kernel,
        scan_kernel,
        {"weights times 1.01": LOUD, "a chunk not rescaled": {"rescale": False}, "a state lost": {"lost": 2}},
        scan_inputs,
    ),
    "gated linear attention": Pipeline(
        gated_reference,
        gated_kernel,
        gated_kernel,
        {"weights times 1.01": LOUD, "a chunk not rescaled": {"rescale": False}, "a state lost": {"lost": 2}},
        gated_inputs,
    ),
    "cross-entropy of rounded logits": Pipeline(
        entropy_reference,
        entropy_kernel,
        entropy_kernel,
        {"times 1.01": LOUD, "a tail of classes lost": {"lost": 8}, "the next class": {"other": 1}},
        entropy_inputs,
        wide=True,
    ),
}


pytestmark = pytest.mark.usefixtures("no_causes")
DEVICES, DTYPES = ("cpu", "npu"), ("bfloat16", "float16")
PLACES = pytest.mark.parametrize(("dtype", "device"), [("bfloat16", "cpu"), ("bfloat16", "npu"), ("float16", "npu")])
FAULTS = [(name, fault) for name, pipeline in PIPELINES.items() for fault in pipeline.faults]


def checker(device: str) -> Checker:
    registry = Registry.default()
    registry.devices["npu"] = Emulated
    return Checker(RunRequest(device=device), registry)


def verdicts(
    name: str, dtype: str, device: str, *, fault: str = "", named: bool = True, backward: bool = False, seed: int = 0
) -> tuple[Verdict, ...]:
    pipeline, checks = PIPELINES[name], checker(device)
    given = pipeline.inputs(torch.Generator().manual_seed(seed), getattr(torch, dtype))
    how: dict[str, Any] = {"borders": pipeline.bordered(checks.border)} if named else {}
    function = pipeline.function(**pipeline.faults.get(fault, {}))
    return checks.compare(function, pipeline.reference, given, key=name, backward=backward, **how)


# What they round is no operand of a product.
NAMED_ALONE = ("cross-entropy of rounded logits",)
# Their backward divides by what they round.
FORWARD_ALONE = ("gated linear attention",)
NAMED = pytest.mark.parametrize("named", [True, False], ids=["named borders", "rounded operands"])


@PLACES
@NAMED
@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_passes(name: str, named: bool, dtype: str, device: str) -> None:
    if named or name not in NAMED_ALONE:
        found = verdicts(name, dtype, device, named=named, backward=named or name not in FORWARD_ALONE)
        assert [verdict.reason for verdict in found if verdict.verdict != "pass"] == []


@PLACES
@NAMED
@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_its_faults_do_not(name: str, fault: str, named: bool, dtype: str, device: str) -> None:
    (found,) = verdicts(name, dtype, device, fault=fault, named=named)
    assert found.verdict == "error"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scaled", [False, True], ids=["a sum of products", "a recurrence"])
def test_what_a_recurrence_hands_on_may_be_16_bit_and_a_plain_sum_may_not(
    scaled: bool, dtype: str, device: str
) -> None:
    narrow, factor = getattr(torch, dtype), 0.9 if scaled else 1.0

    def accumulated(
        x: torch.Tensor, weight: torch.Tensor, step: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        total = torch.zeros(x.shape[1], weight.shape[2], dtype=x.dtype, device=x.device)
        for part, factors in zip(x, weight, strict=True):
            total = step((total * factor if scaled else total) + part @ factors)
        return total

    def kernel(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return accumulated(x.float(), weight.float(), lambda tensor: tensor.to(narrow).float()).to(narrow)

    def reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return accumulated(x.float(), weight.float(), lambda tensor: tensor).to(narrow)

    generator = torch.Generator().manual_seed(0)
    given = [normal(generator, narrow, 32, 24, 16), normal(generator, narrow, 32, 16, 40)]
    (found,) = checker(device).compare(kernel, reference, given, key="sum")
    assert found.verdict == ("pass" if scaled else "error")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy_of_rounded_logits_is_an_error_without_that_border(dtype: str, device: str) -> None:
    (found,) = verdicts("cross-entropy of rounded logits", dtype, device, named=False)
    assert found.verdict == "error"


@pytest.mark.parametrize("device", DEVICES)
def test_a_named_border_changes_nothing_of_a_pipeline_that_passes_without(device: str) -> None:
    first, second = (verdicts("flash attention", "bfloat16", device, named=named)[0] for named in (True, False))
    assert first.outputs[0].metrics == second.outputs[0].metrics
