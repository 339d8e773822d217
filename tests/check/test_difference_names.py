"""The name of what two results of equal inputs differ by; none where it has none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from pytest_probe import capture
from pytest_probe.check import CaseRuns, Checker, RunRequest
from pytest_probe.check.difference_names import differences
from pytest_probe.registry import Registry
from tests.support import two_calls
from tests.support.emulated import narrow_only, to_bits
from tests.support.two_calls import normal, nudged

Function = Callable[..., Any]


def named(a: Function, b: Function, reference: Function, inputs: Sequence[Any], allow: str = "none") -> dict[str, str]:
    """What both functions differ by on equal inputs, forward and backward: by output."""
    checker = Checker(RunRequest("cpu", allow=(allow,), keeps_sides=True), Registry.default())
    found: dict[str, str] = {}
    cases = (checker.pairs(each, reference, inputs, backward=True, key="key") for each in (a, b))
    runs = CaseRuns(checker), CaseRuns(checker)
    for pair in zip(*cases, strict=True):
        found |= differences(checker, *(each.run(case) for each, case in zip(runs, pair, strict=True)))
    return found


def rows(dtype: torch.dtype = torch.bfloat16) -> list[Any]:
    return [normal(32, 128, dtype=dtype), [128], normal(128, dtype=dtype), 1e-6]


def test_a_rounding_more_is_that_of_the_side_that_has_it() -> None:
    pair = two_calls.cast_before_weight, two_calls.cast_last
    found = named(*pair, two_calls.rms_norm, rows())
    assert found["output.0"] == "as by one rounding more in bfloat16 (A)"
    assert found["grad.input.2"] == "as by two roundings more in bfloat16 (A)"
    assert named(*pair[::-1], two_calls.rms_norm, rows())["output.0"] == "as by one rounding more in bfloat16 (B)"


@pytest.mark.parametrize(("seconds", "name"), [((9, 9, 0), "as by one rounding more in bfloat16 (A)"), ((9, 9, 9), "")])
def test_what_is_dear_once_is_timed_again(seconds: Sequence[int], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection of the garbage of a whole run of tests took longer than a run may, and the name was lost."""
    moments = chain.from_iterable(accumulate(chain.from_iterable((0, each) for each in seconds)) for _ in range(9))
    monkeypatch.setattr("pytest_probe.check.difference_names.time.process_time", moments.__next__)
    found = named(two_calls.cast_before_weight, two_calls.cast_last, two_calls.rms_norm, rows())
    assert found["output.0"] == name


def test_both_sides_may_round_at_another_place() -> None:
    def product(x: Any, y: Any, z: Any) -> Any:
        return (x * y) * z + x * (y * z)

    def first(x: Any, y: Any, z: Any) -> Any:
        wide = [each.float() for each in (x, y, z)]
        return ((x * y).float() * wide[2] + wide[0] * (wide[1] * wide[2])).to(x.dtype)

    def last(x: Any, y: Any, z: Any) -> Any:
        wide = [each.float() for each in (x, y, z)]
        return ((wide[0] * wide[1]) * wide[2] + wide[0] * (y * z).float()).to(x.dtype)

    found = named(first, last, product, [normal(32, 64, dtype=torch.bfloat16, seed=each) for each in range(3)])
    assert found["output.0"] == "as by one rounding more in bfloat16 at another place"


def test_the_order_of_a_sum() -> None:
    def total(x: Any, dim: int) -> Any:
        return torch.sum(x, dim)

    found = named(total, two_calls.added_in_sequence, total, [normal(16, 4096).abs(), 1])
    assert found == {"output.0": "as a sum in another order (B)"}


def test_a_device_mode() -> None:
    product = narrow_only(torch.matmul, two_calls.with_operands(to_bits(11)))
    found = named(product, torch.matmul, torch.matmul, [normal(24, 256), normal(256, 16)], allow="tf32")
    assert found["output.0"] == "as TF32 inputs (A)"


def test_equal_outputs_are_not_asked_for_a_name() -> None:
    assert named(two_calls.cast_last, two_calls.cast_last, two_calls.rms_norm, rows()) == {}


HEALTHY: list[tuple[Function, Sequence[Any]]] = [
    (two_calls.cast_last, rows()),
    (lambda x: F.softmax(x, -1), [normal(32, 128)]),
    (F.gelu, [normal(32, 128)]),
    (torch.matmul, [normal(32, 64), normal(64, 48)]),
    (F.scaled_dot_product_attention, [normal(1, 2, 32, 64, seed=each) for each in range(3)]),
]


@pytest.mark.evidence
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("share", [0.02, 0.1])
@pytest.mark.parametrize("number", range(len(HEALTHY)))
def test_other_differences_have_no_name(number: int, share: float, dtype: torch.dtype) -> None:
    function, inputs = HEALTHY[number]
    inputs = [each.to(dtype) if isinstance(each, torch.Tensor) else each for each in inputs]
    reference = two_calls.rms_norm if function is two_calls.cast_last else function
    found = named(function, nudged(function, share, seed=number), reference, inputs)
    assert "output.0" in found
    assert not any(found.values())


def softmax_in_float32(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x.float(), -1).to(x.dtype)


def softmax_by_sums(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x.float())
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


def gelu_by_erf(x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide / 2 * (1 + torch.erf(wide / 2**0.5))).to(x.dtype)


def test_a_backward_from_a_result_that_was_rounded() -> None:
    """torch's softmax saves what it returns."""
    found = named(
        lambda x: F.softmax(x, -1), softmax_in_float32, lambda x: F.softmax(x, -1), [normal(64, 128).bfloat16()]
    )
    assert found["grad.input.0"] == "as by one rounding more in bfloat16 (A)"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("one", "other"), [(softmax_in_float32, softmax_by_sums), (F.gelu, gelu_by_erf)], ids=["softmax", "gelu"]
)
def test_another_algorithm_has_no_name(one: Function, other: Function, dtype: torch.dtype) -> None:
    assert not any(named(one, other, one, [normal(64, 128, dtype=dtype)]).values())


def test_the_stored_outputs_of_two_dumps(pytester: pytest.Pytester) -> None:
    def record(folder: str, backend: SDPBackend) -> None:
        heads = [normal(1, 4, 48, 64, seed=each).bfloat16().requires_grad_() for each in range(3)]
        incoming = normal(1, 4, 48, 64, seed=9).bfloat16()
        with capture(folder, task="tensor"), sdpa_kernel(backend):
            F.scaled_dot_product_attention(heads[0], heads[1], heads[2]).backward(incoming)

    record("A", SDPBackend.FLASH_ATTENTION)  # which rounds its weights
    record("B", SDPBackend.MATH)
    result = pytester.runpytest("--probe-dump=A", "--probe-against=B", "--probe-out=out")
    result.assert_outcomes(passed=2)
    found = [json.loads(line)["answers"][0]["pair"] for line in Path("out/results.jsonl").read_text().splitlines()]
    assert {each["status"] for each in found} == {"rounding"}
    assert {each["difference"] for each in found} == {"as by roundings between its steps in bfloat16 (A)"}
