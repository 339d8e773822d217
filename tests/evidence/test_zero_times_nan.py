"""Zero meets NaN or an infinity: healthy kernels are no error, and numbers in place of NaN are one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.zero_times_nan import PADDLE, TORCH, nan_counts, paddle_verdict, torch_verdict
from pytest_probe.standards.noise.explanation import OWN_KERNEL
from tests.evidence.nan_calls import CALLS

# oneDNN's kernels leave out what meets padding alone, other kernels of the CPU do not.
DIFFER = {name for name in CALLS if name.startswith("conv2d") and name != "conv2d, NaN in the input"}
PADDED = "conv2d's gradient of the input, NaN in the weight"
# What R has is NaN somewhere.
LOST = ("linear, NaN in the weight", "matmul, inf", "conv2d, NaN in the input", "largest pool, NaN",
        "largest pool's gradient, NaN in the incoming one", "a product with a mask, NaN",
        "dropout's gradient, NaN in the incoming one", "linear's gradient of the weight, NaN in the incoming one",
        "softmax of scores and a mask, NaN where the mask is -inf")  # fmt: skip


def multiplies_padding() -> bool:
    """Where torch's CPU has matrix units for bfloat16."""
    call = CALLS[PADDED]
    given = [torch.from_numpy(array) for array in call.inputs()]
    exact, narrow = (int(call.torch(*(x.to(t) for x in given)).isnan().sum()) for t in (torch.float64, torch.bfloat16))
    return narrow > exact


@pytest.mark.parametrize(("dtype", "device"), TORCH)
@pytest.mark.parametrize("name", CALLS)
def test_a_healthy_kernel_of_torch_is_no_error(name: str, dtype: str, device: str) -> None:
    found = torch_verdict(CALLS[name], dtype, device)
    multiplies = name == PADDED and dtype == "bfloat16" and multiplies_padding()
    warned = name in DIFFER or OWN_KERNEL in found.reason or multiplies
    assert found.verdict in (("pass", "warning") if warned else ("pass",)), found.reason
    if found.verdict == "warning" and OWN_KERNEL not in found.reason:
        assert "NaN or an infinity of the arguments" in found.reason
    if name.startswith("conv2d, ") and dtype == "float32":
        given = [torch.from_numpy(array).float() for array in CALLS[name].inputs()]
        wide = CALLS[name].torch(*(each.double() for each in given))
        differ = int((wide.isnan() & ~CALLS[name].torch(*given).isnan()).sum())
        assert found.verdict == ("warning" if differ else "pass")
        assert not differ or str(differ) in found.reason


@pytest.mark.parametrize(("dtype", "device"), PADDLE)
@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.paddle is not None])
def test_a_healthy_kernel_of_paddle_passes(name: str, dtype: str, device: str) -> None:
    pytest.importorskip("paddle")
    found = paddle_verdict(CALLS[name], dtype, device)
    assert found.verdict == "pass", found.reason


@pytest.mark.parametrize(("dtype", "device"), TORCH)
@pytest.mark.parametrize("name", LOST)
def test_a_number_in_place_of_one_nan_is_an_error(name: str, dtype: str, device: str) -> None:
    call = CALLS[name]
    missed = []
    for number in (0.0, 1.5, torch.finfo(getattr(torch, dtype)).max, torch.inf):

        def cleaned(*args: Any, number: float = number) -> torch.Tensor:
            found: torch.Tensor = call.torch(*args)
            found.view(-1)[found.isnan().flatten().nonzero()[0]] = number
            return found

        missed += [number] * (torch_verdict(call, dtype, device, cleaned).verdict != "error")
    assert missed == []


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize("name", ["linear, NaN in the weight", "matmul, inf", "a product with a mask, NaN"])
def test_a_kernel_that_leaves_out_what_all_kernels_of_the_cpu_multiply_is_an_error(name: str, device: str) -> None:
    def skipping(*args: torch.Tensor) -> Any:
        return CALLS[name].torch(*(each.nan_to_num() for each in args))

    assert torch_verdict(CALLS[name], "float32", device, skipping).verdict == "error"


@pytest.mark.parametrize(("dtype", "device"), TORCH)
@pytest.mark.parametrize("name", [PADDED, "linear, NaN in the weight", "conv2d, NaN in the weight"])
def test_nan_in_other_elements_is_an_error(name: str, dtype: str, device: str) -> None:
    call = CALLS[name]

    exact = call.torch(*(torch.from_numpy(array).double() for array in call.inputs()))

    def spread(*args: Any) -> torch.Tensor:
        found: torch.Tensor = call.torch(*args)
        if found.dtype is not torch.float64:
            numbers = (found.isfinite() & exact.isfinite()).flatten().nonzero()
            found.flatten()[numbers[0]] = float("nan")
        return found

    assert torch_verdict(call, dtype, device, spread).verdict == "error"


@pytest.mark.parametrize(("dtype", "device"), TORCH)
@pytest.mark.parametrize("name", ["where, NaN in what is not chosen", "where's gradient, NaN in the incoming one"])
def test_a_product_in_place_of_a_choice_is_an_error(name: str, dtype: str, device: str) -> None:
    def multiplied(*args: torch.Tensor) -> torch.Tensor:
        return args[0] * (args[-1] != 0)

    assert torch_verdict(CALLS[name], dtype, device, multiplied).verdict == "error"


def test_the_formula_counts_the_nan_of_each_call() -> None:
    found = {name: int(nan_counts(call)[0]) for name, call in CALLS.items()}
    assert found["linear, NaN in the weight"] == 4  # one column, of four rows
    assert found["conv2d, NaN in the weight"] == 2 * 7 * 7  # one channel of two images, padding included
    assert found["conv2d, inf in the weight"] == 2 * (7 + 7 - 1)  # where its place meets padding: a row and a column
    assert found["addmm with beta = 0, NaN in what is added"] == 0
