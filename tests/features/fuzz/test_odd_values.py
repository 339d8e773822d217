"""Values that no record has: what a healthy kernel makes of them passes, and a planted fault does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.fuzzing.running import checker, trials
from pytest_probe.features.fuzz.regimes import Limits, floats
from pytest_probe.inputs.draws import round_to_dtype
from pytest_probe.model.dump import Call, Surroundings, TensorSpec
from pytest_probe.model.run import Arguments, Leaf
from pytest_probe.numerics.dtypes import numpy_dtype
from tests.evidence.test_calls import slanted
from tests.support.gradients import with_gradient


def drawn(regime: str, dtype: str, shape: tuple[int, ...], power: float, seed: int) -> Leaf:
    values = floats(regime, dtype, shape, None, np.random.default_rng(seed), limits=Limits(power))
    return Leaf(np.asarray(round_to_dtype(np.asarray(values), dtype)), True)


def made(dtype: str, *numbers: Any) -> Leaf:
    return Leaf(np.asarray(round_to_dtype(np.asarray(numbers, np.float64), dtype)), True)


def verdicts(
    api: str,
    args: tuple[Any, ...],
    device: str,
    kernel: Callable[..., Any] | None = None,
    gradient: Leaf | None = None,
    **kwargs: Any,
) -> list[str]:
    """Of both directions of one call, by the table's judges."""
    specs = [TensorSpec(each.array.dtype.name, each.array.shape) if isinstance(each, Leaf) else each for each in args]
    call = Call(tuple(specs), kwargs, None, (), surroundings=Surroundings())
    arguments = Arguments(args, kwargs, () if gradient is None else (gradient,))
    judged = trials(checker(api, kernel, device), api).judged(call, arguments)
    assert not judged.rejected
    return [each.verdict.verdict for each in judged.checked]


def scaled(input: torch.Tensor) -> torch.Tensor:
    """The same number, whose gradient is 1 % too large."""
    return with_gradient(input, lambda gradient: (gradient.double() * 1.01).to(gradient.dtype))


# What a sum of copies loses moves all that it enters; whole numbers less one logarithm lie as far from the border
# between two numbers; the tail of gelu is what float32 leaves of 1 + tanh.
ODD = [
    ("Functional.log_softmax", (drawn("integers", "float16", (4095,), 0, 1), -1), {}),
    ("Functional.softmax", (drawn("ties", "bfloat16", (1024, 1), 0, 1), -2), {}),
    ("Functional.gelu", (drawn("halves", "float16", (47, 193), 3, 6),), {"approximate": "tanh"}),
]


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize(("api", "args", "kwargs"), ODD, ids=[each[0] for each in ODD])
def test_rounding_that_many_elements_share(api: str, args: Any, kwargs: Any, device: str) -> None:
    function = getattr(torch.nn.functional, api.partition(".")[2])

    def kernel(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return function(scaled(input), *args, **kwargs)

    # Of torch's own CPU kernels the two softmaxes round inside.
    rounds = device == "cpu" and "softmax" in api
    right, wrong = verdicts(api, args, device, **kwargs), verdicts(api, args, device, kernel, **kwargs)
    assert right == ["pass", "pass"] or (rounds and "error" not in right)
    assert wrong == ["pass", "error"] or (rounds and wrong[1] == "error" != wrong[0])


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_a_count_is_cast_to_the_dtype_that_it_divides(device: str) -> None:
    """683 largest elements share each gradient, in bfloat16 684 of them."""
    given = torch.arange(1, 2, 2.0**-7, dtype=torch.bfloat16)
    told = given[(given.double() / 683).bfloat16() != (given.double() / 684).bfloat16()]
    gradient = made("bfloat16", *told.tolist())
    equal = made("bfloat16", *np.ones((len(told), 683)))

    def shared_by_more(input: torch.Tensor, dim: int) -> torch.Tensor:
        return torch.amax(scaled(input), dim)

    assert verdicts("Torch.amax", (equal, -1), device, gradient=gradient) == ["pass", "pass"]
    assert verdicts("Torch.amax", (equal, -1), device, shared_by_more, gradient=gradient) == ["pass", "error"]


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_a_difference_of_neighbours_is_no_choice(device: str) -> None:
    """The gradient of their deviation: float32 rounds their mean, so that it adds up to no zero."""
    neighbours = made("float32", [1.5, 2.0, 9.0], [1.5 + 2**-23, 2.0 - 2**-23, 9.0 + 2**-20])
    assert verdicts("Torch.std", (neighbours, 0), device) == ["pass", "pass"]


class Doubled(torch.autograd.Function):
    """A product, whose gradient is computed with numbers twice as large."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(input, other)
        return input * other

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        input, other = ctx.saved_tensors
        return gradient * other, (gradient * input * 2).sum_to_size(other.shape) / 2


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_a_sum_of_two_infinities_that_the_framework_composes(device: str) -> None:
    """The gradient of a factor that is broadcast: products are numbers of float16, then they are added. Where they
    overflow nothing is judged, and that is said."""
    ones = made("float16", 1.5, 1.5)
    one = Leaf(np.array(1.0, np.float16), True)
    composed = (made("float16", 60_000.0, -50_000.0), one)
    assert verdicts("Torch.mul", composed, device, gradient=ones) == ["pass", "warning"]
    within = (made("float16", 30_000.0, -25_000.0), one)
    assert verdicts("Torch.mul", within, device, gradient=ones) == ["pass", "pass"]
    assert verdicts("Torch.mul", within, device, Doubled.apply, gradient=ones) == ["pass", "error"]


class Selecting(torch.autograd.Function):
    """Dropout whose gradient is chosen where the forward kept an element, or a number where it should be NaN."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, number: float) -> torch.Tensor:
        result = torch.nn.functional.dropout(input, 0.5)
        ctx.kept, ctx.number = result != 0, number
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        given = (gradient.double() * 2).to(gradient.dtype).nan_to_num(nan=ctx.number)
        return torch.where(ctx.kept, given, torch.zeros_like(given)), None


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_gradient_of_nan_is_nan_or_dropped(dtype: str, device: str) -> None:
    """The mask's zero times NaN is NaN, as torch's kernel has it; a kernel that selects gives zero."""
    numbers, lost = made(dtype, *np.linspace(1, 2, 64)), made(dtype, *([1.0, np.nan] * 32))

    def dropout(number: float) -> Callable[..., torch.Tensor]:
        return lambda input, p, training: Selecting.apply(input, number)

    call = ("Functional.dropout", (numbers, 0.5, True), device)
    assert verdicts(*call, gradient=lost) == ["pass", "pass"]
    assert verdicts(*call, dropout(np.nan), gradient=lost) == ["pass", "pass"]
    assert verdicts(*call, dropout(1.0), gradient=lost) == ["pass", "error"]


def test_a_backward_that_would_end_the_process_is_passed_over() -> None:
    images = Leaf(np.random.default_rng(0).standard_normal((2, 4, 8, 8)).astype(np.float32), False, (256, 1, 32, 4))
    weight = Leaf(np.ones(4, np.float32), True)
    assert verdicts("Functional.group_norm", (images, 2, weight), "cpu") == ["pass"]
    asked = Leaf(images.array, True, images.strides)
    assert verdicts("Functional.group_norm", (asked, 2, weight), "cpu") == ["pass", "pass"]


@pytest.mark.parametrize(("dtype", "roundoff"), [("float16", 2.0**-10), ("bfloat16", 2.0**-7)])
def test_images_of_one_element_whose_strides_have_the_channels_last(dtype: str, roundoff: float) -> None:
    """Sizes of 1 make a tensor dense in either order; the strides choose a kernel."""
    rng = np.random.default_rng(0)
    image = Leaf(rng.standard_normal((8, 16, 1, 1)).astype(numpy_dtype(dtype)), True, (16, 1, 16, 16))
    mean, weight, bias = (Leaf(rng.standard_normal(16).astype(numpy_dtype(dtype))) for _ in range(3))
    var = Leaf((rng.random(16) + 0.5).astype(numpy_dtype(dtype)))

    def wrong(*args: torch.Tensor) -> torch.Tensor:
        return slanted(torch.nn.functional.batch_norm, 0, 1 + roundoff, *args)

    call = ("Functional.batch_norm", (image, mean, var, weight, bias), "cpu")
    # The backward's own kernel rounds inside, in steps that are not written down.
    assert verdicts(*call) == ["pass", "warning"]
    assert verdicts(*call, wrong) == ["pass", "error"]
