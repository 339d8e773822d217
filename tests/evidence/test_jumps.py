"""Functions of a user's, of which nobody knows whether they jump: what the jumps of some elements grant to others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from tests.evidence.test_small_elements import SoftmaxOfGpu, softmax
from tests.support.comparing import compared

Tensor = torch.Tensor
Function = Callable[..., Tensor]
pytestmark = [pytest.mark.usefixtures("no_causes"), pytest.mark.parametrize("device", ["cpu", "other"])]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("rows", "others", "confidence"), [(1024, 1, 12), (8192, 8, 16)])
def test_gradients_of_a_softmax_whose_rows_are_nearly_all_confident_pass(
    rows: int, others: int, confidence: int, device: str
) -> None:
    """The scatter of few rows is what explains p - 1 in all others."""
    x = numbers(rows, 16)
    x[:, 3] += confidence + 8 * x[:, 4].abs()
    x[:others] = numbers(others, 16, seed=5)
    found = compared(SoftmaxOfGpu.apply, softmax, [x], device=device, allow="none", backward=True)
    assert [each.verdict for each in found] == ["pass", "pass"]


def chosen(values: Tensor, places: Tensor) -> Tensor:
    return values.gather(-1, places[:, None])[:, 0]


def of_first(x: Tensor, values: Tensor) -> Tensor:
    return chosen(values, x.argmax(-1))


def of_last(x: Tensor, values: Tensor) -> Tensor:
    return chosen(values, x.shape[-1] - 1 - x.flip(-1).argmax(-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "levels"), [(2048, 8), (16384, 64)])
def test_what_belongs_to_another_of_equal_numbers_is_no_error(
    rows: int, levels: int, dtype: torch.dtype, device: str
) -> None:
    """Few runs show few of the choices, and jumps are of all sizes."""
    args = [(numbers(rows, 8) * levels).round() / levels, numbers(rows, 8, seed=1)]
    (found,) = compared(of_last, of_first, [each.to(dtype) for each in args], device=device, allow="none")
    assert found.verdict != "error", found.reason


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_a_quantiser_of_rows_may_round_a_half_otherwise(seed: int, device: str) -> None:
    def quantised(x: Tensor) -> Tensor:
        largest = x.abs().amax(-1, keepdim=True)
        return torch.round(x / largest * 127) * (largest / 127)

    def by_a_factor(x: Tensor) -> Tensor:
        largest = x.float().abs().amax(-1, keepdim=True)
        return (torch.round(x.float() * (127 / largest)) * (largest / 127)).to(x.dtype)

    args = [numbers(512, 1024, seed=seed).bfloat16()]
    (found,) = compared(by_a_factor, quantised, args, device=device, allow="none")
    assert found.verdict != "error", found.reason


def over(x: Tensor, divisor: Tensor, instead: float = 0.0) -> Tensor:
    return torch.where(divisor == 0, torch.full_like(x, instead), x / divisor)


def distance(x: Tensor, target: Tensor, least: float = 0.0) -> Tensor:
    """Where the target is zero there is none."""
    return torch.where(target > least, (x - target).abs(), torch.zeros_like(x))


OF_ZEROS: dict[str, tuple[Function, Function]] = {
    "a division by zero that gives 1": (over, lambda x, divisor: over(x, divisor, 1.0)),
    "a target of zero that counts": (distance, lambda x, target: distance(x, target, -1.0)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("zeros", [0.003, 0.03, 0.3])
@pytest.mark.parametrize("name", OF_ZEROS)
def test_the_wrong_side_of_an_edge_at_zero_is_an_error(
    name: str, zeros: float, dtype: torch.dtype, device: str
) -> None:
    """Zeros that move all cross it alike: that is no choice among equal numbers."""
    right, wrong = OF_ZEROS[name]
    second = numbers(40, 50, seed=1).abs() + 1
    second[torch.rand(40, 50, generator=torch.Generator().manual_seed(2)) < zeros] = 0
    args = [numbers(40, 50).to(dtype), second.to(dtype)]
    verdicts = [compared(made, right, args, device=device, allow="none")[0].verdict for made in (right, wrong)]
    assert verdicts == ["pass", "error"]


def test_a_hidden_score_that_leaks_is_an_error_where_the_mask_is_the_smallest_number(device: str) -> None:
    mask = torch.zeros(32, 32).masked_fill(torch.ones(32, 32).triu(1).bool(), torch.finfo(torch.float32).min)

    def leaking(x: Tensor, mask: Tensor) -> Tensor:
        mask = mask.clone()
        mask[5, 6] = 0
        return hidden(x, mask)

    def hidden(x: Tensor, mask: Tensor) -> Tensor:
        return softmax(x + mask)

    args = [numbers(32, 32), mask]
    verdicts = [compared(made, hidden, args, device=device, allow="none")[0].verdict for made in (hidden, leaking)]
    assert verdicts == ["pass", "error"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_wrong_side_of_an_edge_is_an_error_next_to_numbers_that_do_not_jump(
    dtype: torch.dtype, device: str
) -> None:
    x = ((numbers(4, 8, 32, 32) * 4).round() / 4).to(dtype)
    (found,) = compared(
        lambda x: torch.where(x >= 0.5, x.exp(), softmax(x)),
        lambda x: torch.where(x > 0.5, x.exp(), softmax(x)),
        [x],
        device=device,
        allow="none",
    )
    assert found.verdict == "error"
    assert "on the wrong side of an edge that an input meets exactly" in found.reason


def nucleus(x: Tensor, share: float = 0.9) -> Tensor:
    return softmax(x).cumsum(-1) > share


def above_mean(x: Tensor) -> Tensor:
    return x > x.mean(-1, keepdim=True)


def above_half(x: Tensor) -> Tensor:
    return x * 2 > 1


def from_half(x: Tensor) -> Tensor:
    return x * 2 >= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [nucleus, above_mean, above_half])
def test_booleans_of_rounded_numbers_may_differ_at_an_edge(function: Function, dtype: torch.dtype, device: str) -> None:
    """Of a kernel that computes in float32, and of the function itself."""
    for seed in range(3):
        x = ((numbers(100, 100, seed=seed) * 16).round() / 16).to(dtype)
        for made in (function, lambda x: function(x.float())):
            (found,) = compared(made, function, [x], device=device, allow="none", key=str(seed))
            assert found.verdict == "pass", found.reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_booleans_are_errors(dtype: torch.dtype, device: str) -> None:
    x = ((numbers(100, 100) * 16).round() / 16).to(dtype)
    faults: list[tuple[Function, Function]] = [
        (lambda x: nucleus(x, 0.95), nucleus),
        (lambda x: nucleus(x).roll(1, 0), nucleus),
        (lambda x: above_mean(x).logical_not(), above_mean),
        (from_half, above_half),
    ]
    for wrong, right in faults:
        (found,) = compared(wrong, right, [x], device=device, allow="none")
        assert found.verdict == "error"
        assert "elements are on the other side of an edge" in found.reason


def remainder_at_multiples(x: Tensor, y: Tensor) -> Tensor:
    exact = torch.remainder(x, y)
    return torch.where((exact == 0) & (x > 0), y, exact)


# Of each API, a user's function where there is none: the call, and a fault where its arguments lie on an edge.
AT_EDGES: dict[str, tuple[Function, Function]] = {
    "Torch.floor_divide": (torch.floor_divide, lambda x, y: torch.floor(x * y.reciprocal().nextafter(0 * y))),
    "Torch.remainder": (torch.remainder, remainder_at_multiples),
    "": (lambda x, y: (x / 2).round().int(), lambda x, y: (x / 2 + 0.5).floor().int()),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("api", AT_EDGES)
def test_another_step_exactly_on_its_edge_is_a_warning(api: str, dtype: torch.dtype, device: str) -> None:
    function, fault = AT_EDGES[api]
    args = [
        torch.randint(0, high, (40, 50), generator=torch.Generator().manual_seed(high)).to(dtype) + low
        for low, high in ((0, 60), (1, 9))
    ]
    one = function(*args)
    place = int((fault(*args) != one).flatten().nonzero()[3])

    def once(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(torch.arange(x.numel()).view(x.shape) == place, fault(x, y), function(x, y))

    for wrong in (once, fault):
        (found,) = compared(wrong, function, args, device=device, allow="none", api=api or None)
        assert found.verdict in ("warning", "error"), wrong
    (found,) = compared(function, function, args, device=device, allow="none", api=api or None)
    assert found.verdict == "pass", found.reason


@pytest.mark.parametrize("divisor", [3.0, 49.0])
@pytest.mark.parametrize("function", [lambda x: x >= 5, lambda x: x.floor().int()], ids=["booleans", "integers"])
def test_a_quotient_by_a_reciprocal_crosses_edges(function: Function, divisor: float, device: str) -> None:
    """A GPU divides by a number like that: 49 * (1 / 49) is less than 1 in float32."""
    x = torch.arange(500.0)
    reciprocal = torch.tensor(divisor).reciprocal()
    (found,) = compared(
        lambda x: function(x * reciprocal), lambda x: function(x / divisor), [x], device=device, allow="none"
    )
    assert found.verdict == "pass", found.reason


class LastOfLargest(torch.autograd.Function):
    """The largest of each row. Of equal ones the last has the gradient; `damage` is done to it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, damage: Function) -> Tensor:
        ctx.save_for_backward(x)
        ctx.damage = damage
        return x.amax(-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        last = x.shape[-1] - 1 - x.flip(-1).argmax(-1, keepdim=True)
        return ctx.damage(torch.zeros_like(x).scatter(-1, last, gradient[:, None]), x), None


def largest(x: Tensor) -> Tensor:
    return x.max(-1).values


def with_tied_zeros(rows: int, width: int, share: float) -> Tensor:
    """Negative numbers, but for zeros in about half of the places of a share of the rows."""
    generator = torch.Generator().manual_seed(2)
    zeros = torch.rand(rows, 1, generator=generator) < share
    zeros = zeros & (torch.rand(rows, width, generator=generator) < 0.5)
    return torch.where(zeros, 0.0, -numbers(rows, width).abs())


def first_of_tied(x: Tensor) -> tuple[int, int]:
    """The first row in which several zeros are the largest, and the place of the first of them."""
    row = int(((x == 0).sum(-1) > 1).nonzero()[0])
    return row, int((x[row] == 0).nonzero()[0])


def chosen_twice(gradient: Tensor, x: Tensor) -> Tensor:
    row, place = first_of_tied(x)
    gradient[row, place] = gradient[row].sum()
    return gradient


def scaled_in_row(gradient: Tensor, x: Tensor, factor: float) -> Tensor:
    gradient[first_of_tied(x)[0]] *= factor
    return gradient


def next_to_zeros(gradient: Tensor, x: Tensor) -> Tensor:
    row, _ = first_of_tied(x)
    gradient[row] = torch.where(torch.arange(x.shape[1]) == x[row].argmin(), gradient[row].sum(), 0)
    return gradient


DAMAGES: dict[str, Function] = {
    "to two": chosen_twice,
    "lost": partial(scaled_in_row, factor=0),
    "twice as large": partial(scaled_in_row, factor=2),
    "of the other sign": partial(scaled_in_row, factor=-1),
    "to a number that is not the largest": next_to_zeros,
    "to all": lambda gradient, x: torch.where(x == x.amax(-1, keepdim=True), gradient.sum(-1, keepdim=True), 0),
    "none of zeros": lambda gradient, x: torch.where(x == 0, 0, gradient),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "width", "share"), [(40, 2, 1.0), (40, 8, 0.5), (200, 64, 0.05), (64, 1000, 0.05)])
def test_the_gradient_of_the_largest_may_go_to_another_of_equal_zeros(
    rows: int, width: int, share: float, dtype: torch.dtype, device: str
) -> None:
    x = with_tied_zeros(rows, width, share).to(dtype)
    for after in (lambda found: found, lambda found: found.mean()):
        found = compared(
            lambda x, after=after: after(LastOfLargest.apply(x, lambda gradient, x: gradient)),
            lambda x, after=after: after(largest(x)),
            [x],
            device=device,
            allow="none",
            backward=True,
        )
        assert [each.verdict for each in found] == ["pass", "pass"], found[-1].reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("rows", "width", "share"), [(40, 8, 0.5), (64, 1000, 0.1)])
def test_a_gradient_that_goes_to_no_other_of_equal_zeros_is_an_error(
    rows: int, width: int, share: float, damage: str, dtype: torch.dtype, device: str
) -> None:
    x = with_tied_zeros(rows, width, share).to(dtype)
    wrong = DAMAGES[damage]
    found = compared(lambda x: LastOfLargest.apply(x, wrong), largest, [x], device=device, allow="none", backward=True)
    assert [each.verdict for each in found] == ["pass", "error"]


def of_first_positive(x: Tensor, values: Tensor) -> Tensor:
    return of_first(x.relu(), values)


def routed(x: Tensor, weight: Tensor, experts: Tensor, last: bool = False) -> Tensor:
    """The mean of what the two best of 8 experts give; of equally good ones the last."""
    scores = x @ weight
    order = scores.flip(-1).sort(descending=True, stable=True).indices if last else scores.topk(2).indices
    best = 7 - order[:, :2] if last else order
    return experts[best].mean(-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_choice_among_equal_zeros_inside_may_fall_on_another(dtype: torch.dtype, device: str) -> None:
    x, values = (numbers(2000, 4) - 0.5).to(dtype), numbers(2000, 4, seed=1).to(dtype)
    padded = numbers(64, 16)
    padded[:3] = 0
    tokens = [each.to(dtype) for each in (padded, numbers(16, 8, seed=1), numbers(8, 32, seed=2))]
    # The outcome where more pairs of 8 are equal than runs try, and of an element that is a fourth too large.
    for right, other, args, outcome, of_wrong in (
        (of_first_positive, lambda x, values: of_last(x.relu(), values), [x, values], "pass", "error"),
        (of_first, of_last, [torch.zeros(2000, 4, dtype=dtype), values], "pass", "warning"),
        (routed, partial(routed, last=True), tokens, "warning", "error"),
    ):
        (found,) = compared(other, right, args, device=device, allow="none")
        assert found.verdict == outcome, found.reason
        place = len(args[0]) // 2

        def wrong(*args: Tensor, other: Function = other, place: int = place) -> Tensor:
            made = other(*args).clone()
            made[place] *= 1.25
            return made

        (found,) = compared(wrong, right, args, device=device, allow="none")
        assert found.verdict == of_wrong, found.reason
