"""Calls whose verdict was wrong once: what torch's own kernels do, and what no kernel should."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.check import Checker, RunRequest
from pytest_probe.frameworks.torch.framework import TorchDevice
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry

pytestmark = pytest.mark.usefixtures("no_causes")

Function = Callable[..., Any]


def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def compare(function: Function, reference: Function, *args: Any, api: str, **kwargs: Any) -> tuple[Verdict, ...]:
    checker = Checker(RunRequest(device="cpu"), Registry.default())
    return checker.compare(function, reference, args, kwargs, api=api, backward=True)


def outcomes(function: Function, *args: Any, api: str, **kwargs: Any) -> list[str]:
    return [verdict.verdict for verdict in compare(function, function, *args, api=api, **kwargs)]


def no_error(*verdicts: str) -> bool:
    """A warning is allowed where a 16-bit kernel of torch's own CPU rounds inside."""
    return {*verdicts} <= {"pass", "warning"}


def narrow_only(change: Function, right: Function) -> Function:
    """The right function, and its result changed where the first argument is narrower than float64."""

    def function(*args: Any, **kwargs: Any) -> Any:
        result = right(*args, **kwargs)
        return result if args[0].dtype is torch.float64 else change(result)

    return function


def test_nothing_is_left_of_the_gradient_in_the_tail_of_gelu() -> None:
    for size in range(400, 600, 20):
        x = normal(size, scale=10)
        assert outcomes(F.gelu, x, api="Functional.gelu") == ["pass", "pass"]
        assert outcomes(F.gelu, x, api="Functional.gelu", approximate="tanh") == ["pass", "pass"]
    wrong = narrow_only(lambda result: result * 1.001, F.gelu)
    verdicts = compare(wrong, F.gelu, normal(400), api="Functional.gelu")
    assert [verdict.verdict for verdict in verdicts] == ["error", "error"]


class OfNeighbour(torch.autograd.Function):
    """The smallest of each two rows, and the gradient that its neighbour in the row should have."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return smallest(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            (found,) = torch.autograd.grad(smallest(x), x, gradient.roll(1, -1))
        return found


def smallest(x: torch.Tensor) -> torch.Tensor:
    return torch.segment_reduce(x, "min", lengths=torch.full((len(x) // 2,), 2), axis=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_backward_that_looks_for_the_result_among_the_arguments(dtype: torch.dtype) -> None:
    """Where the result was rounded on its way there it was no argument any more, and all gradients were undecided."""
    x = normal(10, 30).to(dtype)
    assert outcomes(smallest, x, api="Torch.segment_reduce") == ["pass", "pass"]
    wrong = compare(OfNeighbour.apply, smallest, x, api="Torch.segment_reduce")
    assert [verdict.verdict for verdict in wrong] == ["pass", "error"]


def test_a_small_number_beside_large_ones() -> None:
    """0.5249 ** 6.305 is 0.017, beside 3,314: less than a roundoff of that, were it like it."""
    x = torch.tensor([0.2607, 3.617, 2.338, 3.299, 0.5249]).half()
    power = torch.tensor(6.305).half()
    lost = narrow_only(lambda result: result * torch.tensor([1, 1, 1, 1, 0]).half(), torch.pow)
    assert outcomes(torch.pow, x, power, api="Torch.pow") == ["pass", "pass"]
    assert compare(lost, torch.pow, x, power, api="Torch.pow")[0].verdict == "error"


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("density", [False, True])
def test_histograms_pass_with_weights_and_as_density(weighted: bool, density: bool) -> None:
    for bins in range(3, 9):
        x = normal(5, bins, scale=4)
        more = {"weight": normal(bins, 5).t()} if weighted else {}
        verdicts = outcomes(torch.histogram, x, bins, api="Torch.histogram", density=density, **more)
        assert verdicts[0] == "pass"


LABELS = torch.tensor([1.0, -1.0] * 8)


@pytest.mark.parametrize(
    ("loss", "args"),
    [
        (F.hinge_embedding_loss, (normal(16), LABELS)),
        (F.cosine_embedding_loss, (normal(16, 8), normal(8, 16).t(), LABELS)),
    ],
)
def test_losses_that_compare_their_target(loss: Function, args: tuple[Any, ...]) -> None:
    api = f"Functional.{loss.__name__}"
    assert outcomes(loss, *args, api=api) == ["pass", "pass"]
    wrong = narrow_only(lambda result: result * 1.001, loss)
    assert [verdict.verdict for verdict in compare(wrong, loss, *args, api=api)] == ["error", "error"]


def test_a_device_without_low_precision_kernels_is_not_wrong() -> None:
    found = compare(torch.linalg.inv, torch.linalg.inv, torch.eye(4).half(), api="Torch.linalg.inv")
    assert [(verdict.verdict, verdict.kind) for verdict in found] == [("skip", "unsupported by the device")] * 2


class TanhInSteps(torch.autograd.Function):
    """Its gradient squares before it subtracts, each rounded, where torch's kernel fuses both."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        return gradient * (1 - y * y)


class Elsewhere(TorchDevice):
    """The CPU under another name."""

    def __init__(self, name: str) -> None:
        super().__init__("cpu")
        self.name = name


def test_another_device_may_take_other_steps() -> None:
    registry = Registry.default()
    registry.devices["elsewhere"] = Elsewhere
    checker = Checker(RunRequest(device="elsewhere"), registry)
    for size in range(100, 200, 5):
        args = (normal(size, scale=4),)
        found = checker.compare(TanhInSteps.apply, torch.tanh, args, api="Torch.tanh", backward=True)
        assert [verdict.verdict for verdict in found] == ["pass", "pass"]


@pytest.mark.parametrize("padding", [1, 2])
def test_a_transposed_convolution_that_pads_by_a_stride(padding: int) -> None:
    """torch's CPU rounds columns in 16 bit there, and nowhere else."""
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(4, 4, 6, 6, generator=generator).bfloat16() for _ in range(2))
    args = (x, weight, None, padding, 0, padding, 1, (3, 3))
    checker = Checker(RunRequest(device="cpu"), Registry.default())
    function = torch.nn.functional.conv_transpose2d
    for verdict in checker.compare(function, function, args, api="Functional.conv_transpose2d", backward=True):
        assert verdict.verdict == "pass", verdict.reason
    wrong = checker.compare(lambda *given: function(*given) * 1.5, function, args, api="Functional.conv_transpose2d")
    assert wrong[0].verdict == "error"


class Scaled(torch.autograd.Function):
    """The gradient times a factor, rounded once."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return (gradient.float() * ctx.factor).to(gradient.dtype), None


@pytest.mark.parametrize("shape", [(4, 6, 9, 5), (4, 6, 45), (7, 10, 30)])
@pytest.mark.parametrize("smoothing", [0.05, 0.1])
def test_constants_that_are_rounded_between_steps_move_all_elements(shape: tuple[int, ...], smoothing: float) -> None:
    """1 - label_smoothing is one number of float16 for all of the gradient."""
    right = functools.partial(F.cross_entropy, label_smoothing=smoothing)
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(shape, generator=generator).half()
        target = torch.randint(0, shape[1], (shape[0], *shape[2:]), generator=generator)
        target.view(-1)[3] = -100
        assert no_error(*outcomes(right, x, target, api="Functional.cross_entropy"))
        wrong = lambda x, target: right(x if x.dtype is torch.float64 else Scaled.apply(x, 1.003), target)  # noqa: E731
        found = compare(wrong, right, x, target, api="Functional.cross_entropy")
        assert no_error(found[0].verdict)
        assert found[1].verdict == "error"


def test_a_lost_sign_of_zero_is_called_that_and_not_flushing() -> None:
    x = torch.tensor([1.0, -0.0, 0.0])
    [found] = compare(lambda x: x + 0.0, torch.clone, x, api="Torch.clone")[:1]
    assert (found.verdict, found.reason) == (
        "error",
        "output.0: 1 of 3 elements are zeros of the other sign; a copy keeps the sign",
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("how", [{"scale_factor": 1.7}, {"size": (7, 22), "align_corners": True}])
def test_bicubic_interpolation_by_rounded_weights(how: dict[str, Any], dtype: torch.dtype) -> None:
    x = normal(2, 3, 10, 11).to(dtype)
    assert outcomes(F.interpolate, x, api="Functional.interpolate", mode="bicubic", **how) == ["warning", "pass"]
    wrong = narrow_only(lambda result: result * 1.02, F.interpolate)
    found = compare(wrong, F.interpolate, x, api="Functional.interpolate", mode="bicubic", **how)
    assert [verdict.verdict for verdict in found] == ["error", "error"]


@pytest.mark.parametrize("alpha", [0.3, 0.1])
def test_a_float_that_the_kernel_rounds_while_all_elements_round(alpha: float) -> None:
    """Of half of 992 elements each reading of alpha is the nearer one by chance, if their own rounding counts."""
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        x, y = torch.randn((31, 32), generator=generator).half(), torch.tensor([[1.93359375]]).half()
        assert outcomes(torch.sub, x, y, api="Torch.sub", alpha=alpha) == ["pass", "pass"]
    wrong = narrow_only(lambda result: result * 1.003, torch.sub)
    assert compare(wrong, torch.sub, x, y, api="Torch.sub", alpha=alpha)[0].verdict == "error"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("norm", [F.rms_norm, torch.nn.RMSNorm(8, elementwise_affine=False)])
def test_an_eps_that_is_the_dtypes_own(dtype: torch.dtype, norm: Function) -> None:
    """The device's eps is that of its arithmetic, 2^-23: float64 would take 2^-52."""
    given = () if isinstance(norm, torch.nn.Module) else ((8,),)
    for scale in (0.01, 0.1, 1.0):
        x = normal(50, 8, scale=scale).to(dtype)
        assert outcomes(norm, x, *given, api="Functional.rms_norm") == ["pass", "pass"]
    x = normal(50, 8, scale=1e-3).to(dtype)
    wrong = narrow_only(lambda result: result, lambda x, *more: F.rms_norm(x, (8,), eps=1e-6))
    right = lambda x, *more: F.rms_norm(x, (8,))  # noqa: E731
    assert compare(wrong, right, x, api="Functional.rms_norm")[0].verdict == "error"


@pytest.mark.parametrize("driver", ["gelsd", "gelsy", "gelss"])
def test_matrices_of_low_rank(driver: str) -> None:
    x = normal(6, 2) @ normal(2, 5)
    assert outcomes(torch.linalg.matrix_rank, x, api="Torch.linalg.matrix_rank")[0] == "pass"
    assert outcomes(torch.linalg.lstsq, x, normal(6, 2), api="Torch.linalg.lstsq", driver=driver)[0] == "pass"
    wrong = narrow_only(lambda result: result + 1, torch.linalg.matrix_rank)
    assert compare(wrong, torch.linalg.matrix_rank, x, api="Torch.linalg.matrix_rank")[0].verdict == "error"


BAGS = torch.randint(0, 4, (20, 3), generator=torch.Generator().manual_seed(0))
PLACES = BAGS.reshape(-1)


def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.add(x, y, alpha=0.3)


def largest_of_bags(weight: torch.Tensor) -> torch.Tensor:
    return F.embedding_bag(BAGS, weight, mode="max")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("api", "function", "args", "more"),
    [
        ("Functional.smooth_l1_loss", F.smooth_l1_loss, (normal(3, 64), normal(64, 3).t()), {"reduction": "sum"}),
        ("Functional.lp_pool2d", F.lp_pool2d, (normal(3, 16, 7, 9).abs(), 3.0, 2), {}),
        ("Functional.lp_pool2d", F.lp_pool2d, (normal(3, 16, 8, 8).abs(), 2.0, 2), {}),
        ("Torch.index_add", torch.index_add, (normal(4, 5), 0, PLACES, normal(60, 5)), {"alpha": 0.3}),
        ("Torch.index_add", torch.index_add, (normal(5, 4), 1, PLACES, normal(5, 60)), {"alpha": 0.3}),
        ("", added, (normal(5, 7), normal(5, 7)), {}),
        ("Functional.embedding_bag", largest_of_bags, (normal(4, 33),), {}),
    ],
)
def test_kernels_that_round_between_their_steps(
    api: str, function: Function, args: tuple[Any, ...], more: dict[str, Any], dtype: torch.dtype
) -> None:
    args = tuple(
        item.to(dtype) if isinstance(item, torch.Tensor) and item.is_floating_point() else item for item in args
    )
    assert no_error(*outcomes(function, *args, api=api, **more))
    wrong = narrow_only(lambda result: Scaled.apply(result * 1.01, 1.01), function)
    assert [found.verdict for found in compare(wrong, function, *args, api=api, **more)] == ["error", "error"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("theta", "size", "align"), [(normal(2, 2, 3), (2, 3, 5, 4), False), (normal(2, 3, 4), (2, 3, 3, 4, 5), True)]
)
def test_grids_of_rounded_coordinates(
    theta: torch.Tensor, size: tuple[int, ...], align: bool, dtype: torch.dtype
) -> None:
    args, more = (theta.to(dtype), size), {"align_corners": align}
    assert outcomes(F.affine_grid, *args, api="Functional.affine_grid", **more) == ["warning", "pass"]
    wrong = narrow_only(lambda result: Scaled.apply(result * 1.01, 1.01), F.affine_grid)
    found = compare(wrong, F.affine_grid, *args, api="Functional.affine_grid", **more)
    assert [verdict.verdict for verdict in found] == ["error", "error"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_step_rounds_its_rate_beside_a_counter_in_float32(dtype: torch.dtype) -> None:
    """torch's fused Adagrad rounds lr in whole vectors, not in the rest: each element follows one reading or the
    other."""

    def stepped(function: Function) -> list[str]:
        checker = Checker(RunRequest(device="cpu"), Registry.default())
        api = "Torch._fused_adagrad_"
        found = checker.compare(function, torch._fused_adagrad_, args, settings, api=api)
        return [verdict.verdict for verdict in found]

    settings = {"lr": 0.01, "lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-10, "maximize": False}

    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        values, slopes = (0.3 * torch.randn(5, 7, generator=generator).to(dtype) for _ in range(2))
        args = ([values], [slopes], [torch.zeros(5, 7, dtype=dtype)], [torch.tensor(1.0)])
        assert stepped(torch._fused_adagrad_) == ["pass"]
        assert stepped(lambda *args, lr, **more: torch._fused_adagrad_(*args, lr=lr * 1.1, **more)) == ["error"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_weighted_loss_of_a_single_row(dtype: torch.dtype) -> None:
    """Times its weight, rounded, and divided by it."""

    def loss(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.nll_loss(x, torch.tensor(2), weight.detach())

    for size in range(3, 30, 4):
        args = (normal(size).to(dtype), normal(2, size)[1].abs().to(dtype))
        assert "error" not in outcomes(loss, *args, api="Functional.nll_loss")
        wrong = narrow_only(lambda result: result * 1.03, loss)
        assert compare(wrong, loss, *args, api="Functional.nll_loss")[0].verdict == "error"


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float16, 1.01), (torch.bfloat16, 1.05)])
def test_a_bessel_function_of_few_elements(dtype: torch.dtype, factor: float) -> None:
    for seed, shape in enumerate([(5, 3), (31,), (100,)]):
        x = normal(*shape, scale=(0.1, 1.0, 5.0)[seed]).to(dtype)
        assert outcomes(torch.special.i0e, x, api="Torch.special.i0e")[0] == "warning"
        wrong = narrow_only(lambda result: result * factor, torch.special.i0e)
        assert compare(wrong, torch.special.i0e, x, api="Torch.special.i0e")[0].verdict == "error"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_healthy_lstms_pass_and_a_scaled_gradient_does_not(dtype: torch.dtype) -> None:
    """In bfloat16 oneDNN computes them, and keeps gates for the backward in 16 bit."""
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        shapes = [(16, 5), (16, 4), (16,), (16,)]
        weights = [(torch.rand(shape, generator=generator) - 0.5).to(dtype) for shape in shapes]
        x, states = torch.randn(5, 3, 5, generator=generator).to(dtype), torch.zeros(2, 1, 3, 4, dtype=dtype)
        args = (x, tuple(states), weights, True, 1, 0.0, True, False, False)
        assert outcomes(torch.lstm, *args, api="VF.lstm") == ["pass", "pass"]

        def wrong(x: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ...]:
            return torch.lstm(Scaled.apply(x, 1.03) if x.dtype is dtype else x, *rest)

        assert [verdict.verdict for verdict in compare(wrong, torch.lstm, *args, api="VF.lstm")] == ["pass", "error"]


@pytest.mark.parametrize("function", [torch.fmin, torch.fmax, torch.minimum, torch.maximum])
def test_gradients_of_a_number_that_is_compared_with_many(function: Function) -> None:
    """It is a sum that cancels, and runs with a number that moved show by how much."""
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        args = (torch.randn(3, 5, generator=generator), torch.randn((), generator=generator))
        assert outcomes(function, *args, api=f"Torch.{function.__name__}") == ["pass", "pass"]
    wrong = narrow_only(lambda result: Scaled.apply(result, 1.001), function)
    found = compare(wrong, function, *args, api=f"Torch.{function.__name__}")
    assert [verdict.verdict for verdict in found] == ["pass", "error"]


@pytest.mark.parametrize(("wide", "narrow"), [("float64", "float32"), ("float32", "bfloat16"), ("float32", "float16")])
@pytest.mark.parametrize(
    ("api", "function"),
    [
        ("Functional.softmax", F.softmax),
        ("Functional.log_softmax", F.log_softmax),
        ("Torch.sum", torch.sum),
        ("Torch.prod", torch.prod),
        ("Torch.cumsum", torch.cumsum),
    ],
)
def test_a_call_that_casts_its_tensors_first(api: str, function: Function, wide: str, narrow: str) -> None:
    """softmax(x, dim, dtype=bfloat16) of float32: rounded before, and its gradient computed in bfloat16."""
    x = (1 + 0.2 * normal(16, 8)).to(getattr(torch, wide))

    def right(x: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
        return function(x, dim, dtype=dtype)

    def wrong(x: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
        return Scaled.apply(right(x, dim, dtype) * 1.02, 1.02)

    dtype = getattr(torch, narrow)
    assert no_error(*outcomes(right, x, -1, dtype, api=api))
    assert [found.verdict for found in compare(wrong, right, x, -1, dtype, api=api)] == ["error", "error"]


def test_a_cast_alone_is_judged_by_its_own_rounding() -> None:
    def truncated(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x.to(dtype) if x.dtype is torch.float64 else (x.view(torch.int32) & -65536).view(torch.float32).to(dtype)

    found = compare(truncated, torch.Tensor.to, normal(40), torch.bfloat16, api="Tensor.to")
    assert found[0].verdict == "error"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("heads", [(2, 1), (4, 2)])
def test_attention_whose_heads_share_keys(heads: tuple[int, int], dtype: torch.dtype) -> None:
    """The gradients of shared keys are summed head by head, each sum rounded: a warning where that is over 1 %."""
    attention: Function = functools.partial(F.scaled_dot_product_attention, is_causal=True, enable_gqa=True)
    api = "Functional.scaled_dot_product_attention"
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        shapes = [(2, count, 4, 4) for count in (heads[0], heads[1], heads[1])]
        args = tuple((3 * torch.randn(shape, generator=generator)).to(dtype) for shape in shapes)
        assert outcomes(attention, *args, api=api) in (["pass", "pass"], ["pass", "warning"])

    def wrong(query: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return attention(Scaled.apply(query, 1.02) if query.dtype is dtype else query, *rest)

    args = tuple(normal(2, count, 24, 16).to(dtype) for count in (heads[0], heads[1], heads[1]))
    assert [found.verdict for found in compare(wrong, attention, *args, api=api)] == ["pass", "error"]


def attended(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float = 1.0, lost: int = 0
) -> torch.Tensor:
    """Causal attention in float32, rounded once: scores off by a factor, the last keys lost."""
    narrow = query.dtype
    query, key, value = (tensor.float() for tensor in (query, key, value))
    scores = query @ key.mT * (scale * query.shape[-1] ** -0.5)
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).tril().logical_not()
    hidden[:, hidden.shape[1] - lost :] = True
    return (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value).to(narrow)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_peaked_attention_passes_and_its_faults_do_not(dtype: torch.dtype) -> None:
    """Scores of 50, as trained models have them: a roundoff of a 16-bit query is all of a weight there, so that a
    gradient in bfloat16 is off by 11 %, a warning."""
    right = functools.partial(F.scaled_dot_product_attention, is_causal=True)
    api = "Functional.scaled_dot_product_attention"
    generator = torch.Generator().manual_seed(0)
    args = tuple((scale * torch.randn(2, 4, 64, 32, generator=generator)).to(dtype) for scale in (4.0, 4.0, 1.0))
    said = "warning" if dtype == torch.bfloat16 else "pass"
    assert outcomes(right, *args, api=api) == ["pass", said]
    assert [found.verdict for found in compare(attended, right, *args, api=api)] == ["pass", "pass"]
    for wrong in (functools.partial(attended, scale=1.01), functools.partial(attended, lost=2)):
        assert compare(wrong, right, *args, api=api)[0].verdict == "error"
    for place in range(3):
        wrong = functools.partial(slanted, right, place, 1.03)
        assert [found.verdict for found in compare(wrong, right, *args, api=api)] == ["pass", "error"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_fewer_queries_than_a_block_holds(dtype: torch.dtype) -> None:
    """They see as many keys as a whole block does: which of those the processor's fast exp takes hangs on that."""
    right = functools.partial(F.scaled_dot_product_attention, is_causal=True)
    api = "Functional.scaled_dot_product_attention"
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        key, value = (torch.randn(2, 4, 16, 8, generator=generator).to(dtype) for _ in range(2))
        args = (torch.zeros(2, 4, 8, 8, dtype=dtype), key, value)
        assert outcomes(right, *args, api=api) == ["pass", "pass"]
        wrong = narrow_only(lambda out: (out.float() * (1 + torch.finfo(dtype).eps)).to(dtype), right)
        assert compare(wrong, right, *args, api=api)[0].verdict == "error"


def slanted(right: Function, place: int, factor: float, *args: torch.Tensor) -> torch.Tensor:
    """The right function, the gradient of one argument times a factor."""
    return right(*(Scaled.apply(item, factor) if number == place else item for number, item in enumerate(args)))


@pytest.mark.parametrize("size", [1e-4, 1e-5])
def test_a_factor_on_subnormal_results_is_an_error(size: float) -> None:
    """Each is within a unit of the right one; on average they are not."""
    args = (normal(32, 64, scale=size).half(), (0.1 * normal(64, 32)).t().half())
    assert outcomes(F.linear, *args, api="Functional.linear") == ["pass", "pass"]

    def scaled(factor: float, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (F.linear(x.float(), weight.float()) * factor).half()

    for factor, verdict in ((1.0, "pass"), (1.01, "error")):
        wrong = functools.partial(scaled, factor)
        assert compare(wrong, F.linear, *args, api="Functional.linear")[0].verdict == verdict


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("function", [F.embedding, functools.partial(F.embedding_bag, mode="sum")])
def test_sparse_gradients_are_judged_by_their_sums(function: Function, dtype: torch.dtype) -> None:
    """A row for every use: judged is what they add up to."""
    index = torch.arange(40).view(4, 10) % 7
    right, api = functools.partial(function, sparse=True), "Functional.embedding_bag"
    weight = normal(10, 8).to(dtype)
    assert outcomes(right, index, weight, api=api) == ["pass", "pass"]
    wrong = functools.partial(slanted, right, 1, 1.02)
    assert [found.verdict for found in compare(wrong, right, index, weight, api=api)] == ["pass", "error"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_range_of_one_step_is_its_start(steps: int, dtype: torch.dtype) -> None:
    """In 16 bit it had been taken for its end, an error that hid any other."""
    args, how = (4.3, -3.0, steps), {"dtype": dtype}
    between = "warning" if steps == 5 and dtype is not torch.float32 else "pass"
    assert outcomes(torch.linspace, *args, api="Torch.linspace", **how) == [between, "skip"]

    def wrong(start: float, end: float, steps: int, **how: Any) -> torch.Tensor:
        return torch.linspace(-start, end, steps, **how)

    assert compare(wrong, torch.linspace, *args, api="Torch.linspace", **how)[0].verdict == "error"


STEPS: dict[str, Function] = {
    "round": lambda x: torch.floor(x + 0.5),
    "floor": lambda x: torch.ceil(x) - 1,
    "ceil": lambda x: torch.floor(x) + 1,
    "trunc": lambda x: torch.where(x == x.trunc(), x - x.sign(), x.trunc()),
    "frac": lambda x: torch.where(x == x.trunc(), 1.0, x.frac()),
    "sign": lambda x: torch.where(x == 0, 1.0, x.sign()),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_has_one_right_side(name: str, dtype: torch.dtype) -> None:
    """On the edge itself, as round of 0.5 to even, no kernel's rounding takes part."""
    right, api = getattr(torch, name), f"Torch.{name}"
    x = torch.arange(-20, 21).to(dtype) / 2
    assert outcomes(right, x, api=api) == ["pass", "pass"]
    assert compare(STEPS[name], right, x, api=api)[0].verdict == "error"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["mul", "add", "sub", "div"])
def test_a_number_in_float32_beside_16_bit_tensors(name: str, dtype: torch.dtype) -> None:
    """A tensor without dimensions promotes nothing: it may be rounded, and its gradient is."""
    function = getattr(torch, name)
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(6, 4, generator=generator).to(dtype)
        number = torch.rand((), generator=generator) + 0.1
        assert outcomes(function, x, number, api=f"Torch.{name}") == ["pass", "pass"]
        assert outcomes(function, number, x, api=f"Torch.{name}") == ["pass", "pass"]
    wrong = lambda x, number: function(Scaled.apply(x, 1.02) * (1.0 if x.dtype is torch.float64 else 1.02), number)  # noqa: E731
    found = compare(wrong, function, normal(40).to(dtype) + 5, torch.tensor(0.7), api=f"Torch.{name}")
    assert [verdict.verdict for verdict in found] == ["error", "error"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("reduce", ["mean", "prod"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rows_reduced_by_an_index_alone(reduce: str, dtype: torch.dtype) -> None:
    """include_self=False starts from nothing, and counts without the row that was there."""

    def function(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return torch.index_reduce(x, 0, PLACES, source, reduce, include_self=False)

    x, source = normal(5, 6).to(dtype), (1 + 0.2 * normal(60, 6)).to(dtype)
    assert no_error(outcomes(function, x, source, api="Torch.index_reduce")[0])
    with_self = narrow_only(lambda _: torch.index_reduce(x, 0, PLACES, source, reduce, include_self=True), function)
    assert compare(with_self, function, x, source, api="Torch.index_reduce")[0].verdict == "error"


def test_eigenvalues_come_in_any_order() -> None:
    """Those of a float32 and of a float64 matrix need not come in the same."""
    matrix = normal(3, 6, 6)

    def turned(change: Function) -> Function:
        return narrow_only(change, torch.linalg.eigvals)

    for change in (lambda values: values.flip(-1), lambda values: values.roll(1, -1)):
        found = compare(turned(change), torch.linalg.eigvals, matrix, api="Torch.linalg.eigvals")
        assert [verdict.verdict for verdict in found] == ["pass", "skip"]
    for change in (lambda values: values * 1.001, lambda values: values[..., :1].expand(3, 6)):
        assert compare(turned(change), torch.linalg.eigvals, matrix, api="Torch.linalg.eigvals")[0].verdict == "error"


def test_eigenvalues_in_the_references_order_have_its_gradient() -> None:
    matrix = torch.diag(torch.arange(1.0, 7.0)) + 0.01 * normal(6, 6)
    assert outcomes(torch.linalg.eigvals, matrix, api="Torch.linalg.eigvals") == ["pass", "pass"]

    def wrong(matrix: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvals(matrix if matrix.dtype is torch.float64 else Scaled.apply(matrix, 1.001))

    found = compare(wrong, torch.linalg.eigvals, matrix, api="Torch.linalg.eigvals")
    assert [verdict.verdict for verdict in found] == ["pass", "error"]


def test_the_modulus_of_complex_numbers_is_rounded() -> None:
    for size in (1e-38, 1e-19, 1.0, 1e18):
        z = torch.complex(normal(1000, scale=size), normal(500, 2, scale=size).view(-1))
        assert outcomes(torch.abs, z, api="Torch.abs") == ["pass", "pass"]

    def wrong(z: torch.Tensor) -> torch.Tensor:
        return torch.abs(z) * (1.0 if z.dtype is torch.complex128 else 1.00001)

    assert compare(wrong, torch.abs, z, api="Torch.abs")[0].verdict == "error"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", [f"{name}_window" for name in ("hann", "hamming", "bartlett", "blackman", "kaiser")])
@pytest.mark.parametrize("count", [400, 512, 1000])
def test_long_windows_pass_and_scaled_ones_do_not(count: int, name: str, dtype: torch.dtype) -> None:
    """Every factor is rounded, and in bfloat16 the places themselves."""
    api, right = f"Torch.{name}", getattr(torch, name)

    def wrong(count: int, dtype: torch.dtype) -> Any:
        return right(count, dtype=dtype) * (1.0 if dtype is torch.float64 else 1.02)

    checker = Checker(RunRequest(device="cpu"), Registry.default())
    found = [checker.compare(made, right, (count,), {"dtype": dtype}, api=api) for made in (right, wrong)]
    assert found[0][0].verdict in ("warning", "pass")
    assert found[1][0].verdict == "error"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_value_that_is_a_boundary(dtype: torch.dtype) -> None:
    boundaries, x = torch.arange(5.0).to(dtype), torch.tensor([0.0, 1.0, 2.5, 4.0]).to(dtype)
    assert outcomes(torch.bucketize, x, boundaries, api="Torch.bucketize")[0] == "pass"

    def wrong(x: torch.Tensor, boundaries: torch.Tensor) -> torch.Tensor:
        return torch.bucketize(x, boundaries, right=x.dtype is not torch.float64)

    assert compare(wrong, torch.bucketize, x, boundaries, api="Torch.bucketize")[0].verdict == "error"
