"""Devices in a mode of their own: diagnosed where it is not allowed, accepted where it is; faults are found still."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_probe.check import Case, Checker, RunRequest
from pytest_probe.frameworks.torch import state
from pytest_probe.model.device_modes import MODES
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import _format
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.evidence.test_faults import FAULTS, HEALTHY, patched_verdicts
from tests.support.checking import verdicts
from tests.support.comparing import compared, outcomes
from tests.support.emulated import CALLS, Function, narrow_only, normal, patches, product, to_bits
from tests.support.writing import entries, write_dump

EVERY = tuple(MODES)
ROUNDINGS = {
    "tf32": (to_bits(11), "TF32 inputs"),
    "hf32": (to_bits(12), "HF32 inputs"),
    "bf16": (to_bits(8), "bfloat16 inputs"),
}


def outputs(
    call: tuple[str, Any, str, tuple[Any, ...]],
    device: Function,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    allow: tuple[str, ...] = ("none",),
    backward: bool = True,
) -> dict[str, OutputVerdict]:
    """The verdict on every output of a call that the device makes in its own way for all but float64."""
    name, owner, attribute, args = call
    right = getattr(owner, attribute)
    path = write_dump(folder, entries(f"{name}.0", right, *args, backward=backward))
    monkeypatch.setattr(owner, attribute, narrow_only(right, device))
    return {output.name: output for verdict in verdicts(path, allow=allow).values() for output in verdict.outputs}


def only(found: Mapping[str, OutputVerdict]) -> OutputVerdict:
    (output,) = found.values()
    return output


@pytest.mark.parametrize("mode", ROUNDINGS)
@pytest.mark.parametrize("name", CALLS)
def test_a_mode_is_diagnosed(name: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounding, words = ROUNDINGS[mode]
    found = outputs(CALLS[name], patches(rounding)[name][2], tmp_path, monkeypatch)
    of_bias = {"grad.input.2"} if name in ("linear", "conv2d") else set()
    assert {key for key, output in found.items() if output.verdict == "pass"} == of_bias
    reasons = [output.summary for output in found.values() if output.verdict == "error"]
    assert [reason for reason in reasons if f"behaves as {words}: " not in reason] == []
    assert all(f"(--probe-allow={mode} accepts it)" in reason for reason in reasons)


@pytest.mark.parametrize("how", ["even", "away", "zero"])
@pytest.mark.parametrize("name", CALLS)
def test_an_allowed_mode_passes_however_it_rounds(
    name: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = outputs(CALLS[name], patches(to_bits(11, how))[name][2], tmp_path, monkeypatch, ("tf32",))
    assert {output.verdict for output in found.values()} == {"pass"}
    assert found["output.0"].metrics["mode"] == "tf32"
    assert found["output.0"].reason.startswith("as tf32 (TF32 inputs): ")
    assert float(found["output.0"].metrics["noise_ratio"]) < 64


@pytest.mark.parametrize("name", CALLS)
def test_one_element_far_off_fails_under_an_allowed_mode(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = patches(to_bits(11))[name][2]

    def faulty(*args: Any) -> torch.Tensor:
        out = device(*args)
        mask = torch.ones(out.numel())
        mask[77] = 1.5
        return out * mask.view(out.shape)

    found = outputs(CALLS[name], faulty, tmp_path, monkeypatch, ("tf32",))["output.0"]
    assert found.verdict == "error"
    assert found.diagnosis is not None
    assert found.diagnosis.cause.startswith("behaves as TF32 inputs, but for element [")


def test_a_mode_that_is_allowed_in_convolutions_fails_in_a_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = patches(to_bits(11))["matmul"][2]
    found = outputs(CALLS["matmul"], device, tmp_path, monkeypatch, ("tf32 in convolution",))
    assert {output.verdict for output in found.values()} == {"error"}


def test_convolutions_that_the_cpus_flag_lets_round_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN does so on CPUs with AMX; here the device rounds the operands itself."""
    device = patches(to_bits(8))["conv2d"][2]
    mkldnn: Any = torch.backends.mkldnn
    if not hasattr(mkldnn, "conv"):
        pytest.skip("torch before 2.9 has no such flag")
    mkldnn.conv.fp32_precision = "bf16"
    try:
        found = outputs(CALLS["conv2d"], device, tmp_path, monkeypatch, ("auto",))
    finally:
        mkldnn.conv.fp32_precision = "none"
    assert {output.verdict for output in found.values()} == {"pass"}
    assert found["output.0"].metrics["mode"] == "bf16 in convolution"
    monkeypatch.undo()
    found = outputs(CALLS["conv2d"], device, tmp_path, monkeypatch, ("auto",))
    assert found["output.0"].verdict == "error"


def test_flags_count_for_a_wrapper_and_not_for_a_registered_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a tracer puts around torch's function calls torch; what a project registers is its own."""
    name, owner, attribute, args = CALLS["conv2d"]
    right, device = getattr(owner, attribute), patches(to_bits(8))["conv2d"][2]
    rounded, registry = narrow_only(right, device), Registry.default()
    monkeypatch.setattr(state, "allowed", lambda _: iter(("bf16 in convolution",)))
    (record,) = (dump := read_dump(write_dump(tmp_path, entries(f"{name}.0", right, *args)))).records

    def verdict() -> str:
        checker = Checker(RunRequest(device="cpu", allow=("auto",), diagnosed=False), registry)
        return checker.run(Case(dump, record, "forward"), None).verdict.verdict

    registry.calls[name] = rounded
    assert verdict() == "error"
    del registry.calls[name]
    monkeypatch.setattr(owner, attribute, rounded)
    assert verdict() == "pass"


def test_flush_to_zero_is_diagnosed_and_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = ("Torch.mul", torch, "mul", (normal(40, 50) * 2.0**-60, normal(40, 50) * 2.0**-66))

    def device(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = a * b
        return torch.where(product.abs() < 2.0**-126, torch.zeros(()), product)

    found = only(outputs(call, device, tmp_path, monkeypatch, backward=False))
    assert found.verdict == "error"
    assert "; behaves as flush to zero: 0 / 0 instead of " in found.summary
    monkeypatch.undo()
    found = only(outputs(call, device, tmp_path, monkeypatch, ("ftz",), backward=False))
    assert (found.verdict, found.metrics["mode"]) == ("pass", "ftz")


HALVES = ("Torch.matmul", torch, "matmul", (normal(32, 512).bfloat16(), normal(512, 16).bfloat16()))
matmul = torch.matmul


def summed(pieces: int, dtype: torch.dtype) -> Function:
    """A product whose sums are rounded to the dtype between pieces."""

    def device(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        parts = [
            matmul(left.float(), right.float()).to(dtype)
            for left, right in zip(a.chunk(pieces, 1), b.chunk(pieces, 0), strict=True)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = (total.float() + part.float()).to(dtype)
        return total.to(a.dtype)

    return device


@pytest.mark.parametrize("pieces", [2, 16])
def test_reduced_reduction_is_allowed(pieces: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = summed(pieces, torch.bfloat16)
    found = only(outputs(HALVES, device, tmp_path, monkeypatch, ("reduced-reduction",), backward=False))
    assert (found.verdict, found.metrics["mode"]) == ("pass", "reduced-reduction")


@pytest.mark.parametrize(
    "change",
    [lambda out: out * 1.005, lambda out: torch.cat([out[:-1], out[-2:-1]])],
    ids=["scaled", "stale row"],
)
def test_reduced_reduction_excuses_nothing_else(change: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def device(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return change(matmul(a.float(), b.float())).bfloat16()

    found = only(outputs(HALVES, device, tmp_path, monkeypatch, ("reduced-reduction",), backward=False))
    assert found.verdict == "error"


def test_float16_accumulation_is_diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = ("Torch.matmul", torch, "matmul", (normal(32, 512).half(), normal(512, 16).half()))
    found = only(outputs(call, summed(64, torch.float16), tmp_path, monkeypatch, backward=False))
    assert found.verdict == "error"
    assert "; has errors as large as with float16 accumulation: " in found.summary


def fast_sin(x: torch.Tensor) -> torch.Tensor:
    """Off by up to 2^-21.41, as CUDA's __sinf."""
    error = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) * 2 - 1
    return x.sin() + error * 2.0**-21.41


def test_fast_intrinsics_pass_where_they_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = ("Torch.sin", torch, "sin", (normal(100, 100),))
    found = only(outputs(call, fast_sin, tmp_path, monkeypatch, backward=False))
    assert found.verdict == "error"
    monkeypatch.undo()
    found = only(outputs(call, fast_sin, tmp_path, monkeypatch, ("fast-math",), backward=False))
    assert (found.verdict, found.metrics["mode"]) == ("pass", "fast-math")
    monkeypatch.undo()
    found = only(outputs(call, lambda x: fast_sin(x) * 1.0001, tmp_path, monkeypatch, ("fast-math",), backward=False))
    assert found.verdict == "error"


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if not fault.startswith("TF32")])
def test_no_mode_excuses_a_fault(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call, patch, directions = FAULTS[fault]
    found = patched_verdicts(call, patch, tmp_path, monkeypatch, allow=EVERY)
    assert found[f"{call[0]}.0.{'forward' if directions == 'both' else directions}"].verdict == "error"


@pytest.mark.parametrize("difference", HEALTHY)
def test_a_healthy_device_needs_no_mode(difference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = patched_verdicts(*HEALTHY[difference], tmp_path, monkeypatch, allow=EVERY, standard="noise").values()
    outputs = [output for verdict in found for output in verdict.outputs]
    assert [(output.name, output.reason) for output in outputs if output.reason or "mode" in output.metrics] == []


def causal(multiply: Function) -> Function:
    """Causal attention: the first query sees one key, whose weight is 1 exactly."""

    def function(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        scores = multiply(query, key.transpose(-2, -1)) / math.sqrt(query.shape[-1])
        unseen = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return multiply(torch.softmax(scores.masked_fill(unseen, -torch.inf), -1), value)

    return function


@pytest.mark.parametrize("how", ["even", "zero"])
@pytest.mark.parametrize("size", [1.0, 10.0])
def test_a_weight_of_1_hides_nothing(how: str, size: float) -> None:
    args = [size * normal(2, 2, 8 + extra, 8)[:, :, :8] for extra in range(3)]
    device, right = causal(product(to_bits(11, how))), causal(torch.matmul)
    asked: Any = {"api": "Functional.scaled_dot_product_attention", "backward": True, "allow": "tf32"}
    assert outcomes(device, right, args, **asked) == ["pass", "pass"]
    assert outcomes(lambda *args: device(*args) * 1.01, right, args, **asked) == ["error", "error"]


@pytest.mark.parametrize(("wrong", "verdict"), [(0.0, "pass"), (1e-36, "error")])
def test_sums_lose_their_terms_under_flush_to_zero(wrong: float, verdict: str) -> None:
    a, b = 2.0**-63 * normal(8, 40), 2.0**-63 * normal(40, 6)

    def flushed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        terms = (x.unsqueeze(-1) * y).double()
        lost = terms.masked_fill(terms.abs() < 2.0**-126, 0.0)
        return lost.sum(-2).float() + wrong

    for allow, wanted in (("none", "error"), ("ftz", verdict)):
        assert outcomes(flushed, torch.matmul, (a, b), api="Torch.matmul", allow=allow) == [wanted]


SUBNORMAL = normal(40, 50) * 2.0**-127


def zeroed(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < 2.0**-126, torch.zeros_like(x), x)


def under_flush(device: Function, right: Function, args: tuple[torch.Tensor, ...], api: str) -> list[str]:
    return [output.verdict for output in compared(device, right, args, api=api, allow="ftz")[0].outputs]


def test_a_sort_that_flushes_leaves_equal_zeros_where_they_are() -> None:
    """It compares flushed numbers, and moves the numbers themselves."""

    def device(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        order = zeroed(x).sort(stable=True).indices
        return x.gather(-1, order), order

    def wrong(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, order = device(x)
        return values.flip(-1), order.flip(-1)

    assert under_flush(device, torch.sort, (SUBNORMAL,), "Torch.sort") == ["pass", "pass"]
    assert under_flush(wrong, torch.sort, (SUBNORMAL,), "Torch.sort") == ["error", "error"]


def test_a_count_of_what_is_not_flushed() -> None:
    device, wrong = (lambda x: torch.count_nonzero(zeroed(x)), lambda x: torch.count_nonzero(zeroed(x)) + 1)
    assert under_flush(device, torch.count_nonzero, (SUBNORMAL,), "Torch.count_nonzero") == ["pass"]
    assert under_flush(wrong, torch.count_nonzero, (SUBNORMAL,), "Torch.count_nonzero") == ["error"]


def test_a_device_may_flush_in_vectors_and_not_in_the_rest_of_a_loop() -> None:
    a, b = normal(40, 50) * 2.0**-60, normal(40, 50) * 2.0**-66

    def device(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([zeroed(x * y)[:30], (x * y)[30:]])

    def wrong(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = device(x, y)
        found[found.abs() > 2.0**-124] *= 1.0001
        return found

    assert under_flush(device, torch.mul, (a, b), "Torch.mul") == ["pass"]
    assert under_flush(wrong, torch.mul, (a, b), "Torch.mul") == ["error"]


def test_what_a_flushed_sum_loses_is_scaled_with_it() -> None:
    """The gradient of a normalisation's weight: a sum of tiny terms, times 1 / sqrt(eps)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 3, generator=generator) * 2.0**-123
    weight, grad = torch.ones(3), torch.randn(64, 3, generator=generator)

    def right(x: torch.Tensor, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(x, None, None, weight, training=True).mul(grad).sum(0)

    def device(x: torch.Tensor, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return zeroed((x - x.mean(0)) * grad).sum(0) / 1e-5**0.5 * weight

    assert under_flush(device, right, (x, grad, weight), "Torch.mine") == ["pass"]
    assert under_flush(lambda *a: device(*a) * 4, right, (x, grad, weight), "Torch.mine") == ["error"]


@pytest.fixture
def flushing() -> Iterator[None]:
    """The whole process flushes, as after the import of a library that was built with -ffast-math."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers to zero")
    _format.cache_clear()
    yield
    torch.set_flush_denormal(False)
    _format.cache_clear()


@pytest.mark.usefixtures("flushing")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("added", "verdict"), [(0.0, "pass"), (1e-20, "error")])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_zeros_where_the_whole_process_flushes(added: float, verdict: str, dtype: torch.dtype) -> None:
    how: Any = {"api": "Torch.floor", "backward": True, "allow": "none"}
    assert outcomes(lambda x: x.floor() + x * added, torch.floor, (normal(5, 7).to(dtype),), **how)[1] == verdict


@pytest.mark.parametrize("mode", EVERY)
def test_running_statistics_that_are_left_as_they_were_are_no_mode(mode: str) -> None:
    """As behind torch's own fallback to the CPU, which copies back what a schema says is written to."""
    x, mean, variance = normal(16, 3), torch.zeros(3), torch.ones(3)

    def right(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(x, mean, variance, training=True)

    def device(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return right(x, mean.clone(), variance.clone())

    for function, verdict in ((device, "error"), (right, "pass")):
        found = compared(function, right, (x, mean, variance), allow=mode)[0]
        written = [output.verdict for output in found.outputs if output.name.startswith("input.")]
        assert written == [verdict] * 2


def test_samples_of_a_mode_are_no_jumps() -> None:
    """Samples do not shrink with the inputs' shift; that makes no element unstable."""
    torch.manual_seed(22)
    arguments = (torch.randn(64, 320).half(), torch.randn(320, 64).half())
    how: Any = {"api": "Torch.matmul", "key": "k", "allow": "reduced-reduction"}
    assert outcomes(summed(16, torch.float16), matmul, arguments, **how) == ["pass"]
