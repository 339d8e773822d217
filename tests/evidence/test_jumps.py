"""Functions of a user's, of which nobody knows whether they jump: what the jumps of some elements grant to others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.evidence.test_small_elements import SoftmaxOfGpu, softmax
from tests.support.comparing import compared
from tests.support.gradients import with_gradient

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


# Of each API the call, and a fault where its arguments lie on an edge.
AT_EDGES: dict[str, tuple[Function, Function]] = {
    "Torch.floor_divide": (torch.floor_divide, lambda x, y: torch.floor(x * y.reciprocal().nextafter(0 * y))),
    "Torch.remainder": (torch.remainder, remainder_at_multiples),
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
        (found,) = compared(wrong, function, args, device=device, allow="none", api=api)
        assert found.verdict in ("warning", "error"), api
    (found,) = compared(function, function, args, device=device, allow="none", api=api)
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


def of_two_experts(x: Tensor, weight: Tensor, experts: Tensor, last: bool = False) -> Tensor:
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
        (of_two_experts, partial(of_two_experts, last=True), tokens, "warning", "error"),
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


STEPS = torch.tensor([-1, -0.5, 0, 0.5, 1])
INTEGERS: dict[str, tuple[Function, Function]] = {
    "bin from its left end": (
        lambda x: torch.bucketize(x, STEPS.to(x.dtype), right=True),
        lambda x: torch.bucketize(x, STEPS.to(x.dtype)),
    ),
    "above and at": (lambda x: (x >= 0.5).int(), lambda x: (x > 0.5).int()),
    "halves up": (lambda x: (x + 0.5).floor().int(), lambda x: x.round().int()),
    "numbers of a row up to its first": (
        lambda x: (x <= x[:, :1]).sum(-1),
        lambda x: (x < x[:, :1]).sum(-1),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_on_the_wrong_side_of_an_edge_are_errors(name: str, dtype: torch.dtype, device: str) -> None:
    wrong, right = INTEGERS[name]
    x = torch.cat([numbers(9, 20), torch.tensor([0.5, -0.5, 1.0, 1.5]).repeat(5)[None]]).to(dtype)
    outcomes = (compared(each, right, [x], device=device, allow="none")[0] for each in (right, wrong))
    assert [each.verdict for each in outcomes] == ["pass", "error"]


def levels(x: Tensor) -> Tensor:
    return torch.round(x / x.abs().amax(-1, keepdim=True) * 127).to(torch.int8)


@pytest.mark.parametrize("seed", range(4))
def test_integers_of_a_row_that_is_divided_by_one_reciprocal_pass(seed: int, device: str) -> None:
    """Of a number that is half the largest, 63.5 is to be rounded, and 63.499996 of a kernel."""

    def by_reciprocal(x: Tensor) -> Tensor:
        return torch.round(x * (127 / x.abs().amax(-1, keepdim=True))).to(torch.int8)

    x = numbers(256, 512, seed=seed).bfloat16().float()
    assert not torch.equal(by_reciprocal(x), levels(x.double()))
    (found,) = compared(by_reciprocal, levels, [x], device=device, allow="none")
    assert found.verdict == "pass", found.reason


def of_weighted_experts(x: Tensor, weight: Tensor, experts: Tensor, last: bool = False, fault: str = "") -> Tensor:
    """What the two best of 8 experts give, weighted; `fault` is done to the second."""
    weights = torch.softmax(x @ weight, -1)
    best = weights.topk(2).indices
    if last:
        best = 7 - weights.flip(-1).sort(descending=True, stable=True).indices[:, :2]
    kept = weights.gather(-1, best)
    if fault == "lost":
        kept = kept * torch.tensor([1.0, 0.0], dtype=x.dtype)
    if fault == "twice":
        best = best[:, :1].expand(-1, 2)
    return (experts[best] * kept[..., None]).sum(-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("padded", [1, 3, 10])
def test_equally_good_experts_excuse_none_that_is_lost_or_taken_twice(
    padded: int, dtype: torch.dtype, device: str
) -> None:
    """Equal scores have one softmax, in each run: what differs is the choice."""
    x = numbers(64, 16)
    x[:padded] = 0
    args = [each.to(dtype) for each in (x, numbers(16, 8, seed=1), numbers(8, 32, seed=2))]

    def verdict(**how: Any) -> str:
        def kernel(x: Tensor, weight: Tensor, experts: Tensor) -> Tensor:
            right, other = (of_weighted_experts(x, weight, experts, **each) for each in ({}, how))
            return torch.cat([other[:padded], right[padded:]])

        return compared(kernel, of_weighted_experts, args, device=device, allow="none")[0].verdict

    assert verdict() == "pass"
    assert verdict(last=True) != "error"
    assert {fault: verdict(fault=fault) for fault in ("lost", "twice")} == {"lost": "warning", "twice": "warning"}


def next_of_first(x: Tensor) -> Tensor:
    return x.argmax(-1) + 1


def next_of_last(x: Tensor) -> Tensor:
    return x.shape[-1] - x.flip(-1).argmax(-1)


def routed(x: Tensor) -> Tensor:
    return F.one_hot(x.topk(2, -1)[1], 8).sum(1).bool()


def routed_to_last(x: Tensor) -> Tensor:
    return routed(x.flip(-1)).flip(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("other", "function"), [(next_of_last, next_of_first), (routed_to_last, routed)])
def test_what_follows_from_the_choice_of_another_of_equal_elements_passes(
    other: Function, function: Function, dtype: torch.dtype, device: str
) -> None:
    x = ((numbers(64, 8) * 2).round() / 2).to(dtype)
    assert not torch.equal(function(x), other(x))
    (found,) = compared(other, function, [x], device=device, allow="none")
    assert found.verdict == "pass", found.reason
    (found,) = compared(lambda x: other(x.roll(1, 0)), function, [x], device=device, allow="none")
    assert found.verdict == "error"


def beside(function: Function, place: float, rank: int, factor: float) -> Function:
    """The function with another gradient where its argument is one of the nearest to a place, and not on it."""

    def wrong(x: Tensor) -> Tensor:
        away = (x.detach().double().abs() - place).abs()
        index = torch.where(away > 0, away, torch.inf).argsort()[rank]
        factors = torch.ones_like(x).index_fill(0, index, factor)
        return function(with_gradient(x, lambda gradient: gradient * factors))

    return wrong


def at_one(x: Tensor) -> Tensor:
    return torch.clamp(x, -1, 1)


def at_a_half(x: Tensor) -> Tensor:
    return torch.where(x > 0.5, x, 0.25 * x)


EDGES: dict[str, tuple[Function, float]] = {
    "Torch.clamp": (at_one, 1.0),
    "Functional.hardshrink": (F.hardshrink, 0.5),
    "Functional.hardswish": (F.hardswish, 3.0),
    "a user's clamp": (at_one, 1.0),
    "a user's leak": (at_a_half, 0.5),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", EDGES)
def test_an_element_on_an_edge_excuses_none_near_it(name: str, dtype: torch.dtype, device: str) -> None:
    function, edge = EDGES[name]
    api = None if name.startswith("a user") else name
    args = [torch.cat([2 * numbers(3000), torch.tensor([edge, -edge, edge])]).to(dtype)]

    def found(kernel: Function) -> str:
        return compared(kernel, function, args, device=device, allow="none", backward=True, api=api)[1].verdict

    assert found(function) == "pass"
    # Zero outside of clamp's range remains zero.
    inside = [rank for rank in (0, 3, 7, 12) if beside_is_moved(function, edge, rank, args)]
    assert inside
    assert {rank: found(beside(function, edge, rank, 0.9)) for rank in inside} == dict.fromkeys(inside, "error")


def beside_is_moved(function: Function, place: float, rank: int, args: list[Tensor]) -> bool:
    x = args[0].double().requires_grad_()
    ways = [torch.autograd.grad(each(x).sum(), x)[0] for each in (function, beside(function, place, rank, 0.9))]
    return not torch.equal(*ways)


@pytest.mark.parametrize("rank", [6, 10])
def test_an_element_near_a_pole_excuses_none_farther_from_it(rank: int, device: str) -> None:
    def wrong(x: Tensor) -> Tensor:
        found = torch.tan(x)
        index = found.abs().argsort(descending=True)[rank]
        return found.index_fill(0, index, 1.02 * float(found[index]))

    args = [2 * numbers(20_000)]
    outcomes = (
        compared(each, torch.tan, args, device=device, allow="none", api="Torch.tan")[0] for each in (torch.tan, wrong)
    )
    assert [each.verdict for each in outcomes] == ["pass", "error"]
