"""Calls whose verdict was wrong once: what torch's own kernels do, and what no kernel should."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from msgspec import Struct

from tests.support.comparing import compared, outcomes
from tests.support.gradients import with_gradient

pytestmark = [pytest.mark.usefixtures("no_causes"), pytest.mark.filterwarnings("ignore::UserWarning")]

Function = Callable[..., Any]
Tensor = torch.Tensor
SINGLE, HALVES = (torch.float32,), (torch.float16, torch.bfloat16)
EVERY = (*SINGLE, *HALVES)
# What a call may get where either verdict is right, and where nothing is said of a direction.
FINE, ANY = {"pass", "warning"}, {"pass", "warning", "error", "skip"}
MEANT = {"fine": FINE, "any": ANY}


class Row(Struct, frozen=True):
    """A call, the verdicts on its forward and its backward, and those on another function in its place.

    args gives the call's arguments by dtype and number; the last may be a dict, of those by keyword. `kernel` is what
    the device runs where it is another function than the reference. The last `wrong_of` calls are made wrong, too.
    """

    api: str
    reference: Function
    args: Callable[[torch.dtype, int], Sequence[Any]]
    wrong: Function | None = None
    faulty: str = "error error"
    healthy: str = "pass pass"
    dtypes: Sequence[torch.dtype] = SINGLE
    calls: int = 1
    wrong_of: int = 1
    kernel: Function | None = None
    device: str = "cpu"

    def judged(self, function: Function, dtype: torch.dtype, number: int) -> list[str]:
        args = list(self.args(dtype, number))
        kwargs = args.pop() if isinstance(args[-1], dict) else {}
        backward = " " in self.healthy
        return outcomes(function, self.reference, args, kwargs, device=self.device, api=self.api, backward=backward)


def as_said(found: Sequence[str], words: str) -> bool:
    return all(verdict in MEANT.get(word, {word}) for verdict, word in zip(found, words.split(), strict=True))


def normal(*shape: int, scale: float = 1.0, seed: int | None = None) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) if seed is None else seed))


def scaled(x: Tensor, factor: float) -> Tensor:
    """Itself, and its gradient times a factor, rounded once."""
    return with_gradient(x, lambda gradient: (gradient.float() * factor).to(gradient.dtype))


def slanted(right: Function, place: int, factor: float, *args: Any, **kwargs: Any) -> Any:
    """The right function, the gradient of one argument times a factor."""
    changed = [scaled(item, factor) if number == place else item for number, item in enumerate(args)]
    return right(*changed, **kwargs)


def times(right: Function, factor: float) -> Function:
    return lambda *args, **kwargs: right(*args, **kwargs) * factor


def both(right: Function, factor: float) -> Function:
    """The result and the gradient times a factor."""
    return lambda *args, **kwargs: scaled(right(*args, **kwargs) * factor, factor)


class OfNeighbour(torch.autograd.Function):
    """The smallest of each two rows, and the gradient that its neighbour in the row should have."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return smallest(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            (found,) = torch.autograd.grad(smallest(x), x, gradient.roll(1, -1))
        return found


def smallest(x: Tensor) -> Tensor:
    return torch.segment_reduce(x, "min", lengths=torch.full((len(x) // 2,), 2), axis=0)


class TanhInSteps(torch.autograd.Function):
    """Its gradient squares before it subtracts, each rounded, where torch's kernel fuses both."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return gradient * (1 - y * y)


def histogram(dtype: torch.dtype, number: int, weighted: bool, density: bool) -> list[Any]:
    bins = 3 + number
    more = {"weight": normal(bins, 5).t()} if weighted else {}
    return [normal(5, bins, scale=4), bins, {"density": density, **more}]


def labelled(dtype: torch.dtype, number: int) -> list[Any]:
    """Logits of several shapes, and classes, of which one is none."""
    shape = ((4, 6, 9, 5), (4, 6, 45), (7, 10, 30))[number % 3]
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(shape, generator=generator).to(dtype)
    target = torch.randint(0, shape[1], (shape[0], *shape[2:]), generator=generator)
    target.view(-1)[3] = -100
    return [x, target]


def rms_norm(x: Tensor, eps: float | None = None) -> Tensor:
    return F.rms_norm(x, (8,), eps=eps)


def of_low_rank() -> Tensor:
    return normal(6, 2) @ normal(2, 5)


PLACES = torch.randint(0, 4, (20, 3), generator=torch.Generator().manual_seed(0)).reshape(-1)


def largest_of_bags(weight: Tensor) -> Tensor:
    return F.embedding_bag(PLACES.reshape(20, 3), weight, mode="max")


def added(x: Tensor, y: Tensor) -> Tensor:
    return torch.add(x, y, alpha=0.3)


# Kernels that round between their steps.
STEPPING: dict[str, tuple[str, Function, Callable[[torch.dtype], list[Any]]]] = {
    "smooth_l1_loss": (
        "Functional.smooth_l1_loss",
        F.smooth_l1_loss,
        lambda d: [normal(3, 64).to(d), normal(64, 3).t().to(d), {"reduction": "sum"}],
    ),
    "lp_pool2d": (
        "Functional.lp_pool2d", F.lp_pool2d, lambda d: [normal(3, 16, 7, 9).abs().to(d), 3.0, 2]
    ),
    "index_add": (
        "Torch.index_add", torch.index_add,
        lambda d: [normal(4, 5).to(d), 0, PLACES, normal(60, 5).to(d), {"alpha": 0.3}],
    ),
    "a user's sum": ("", added, lambda d: [normal(5, 7).to(d), normal(5, 7).to(d)]),
    "the largest of bags": ("Functional.embedding_bag", largest_of_bags, lambda d: [normal(4, 33).to(d)]),
}  # fmt: skip


def adagrad(dtype: torch.dtype, number: int) -> list[Any]:
    """torch's fused Adagrad rounds lr in whole vectors, not in the rest: each element follows one reading or the
    other."""
    generator = torch.Generator().manual_seed(number)
    values, slopes = (0.3 * torch.randn(5, 7, generator=generator).to(dtype) for _ in range(2))
    settings = {"lr": 0.01, "lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-10, "maximize": False}
    return [[values], [slopes], [torch.zeros(5, 7, dtype=dtype)], [torch.tensor(1.0)], settings]


def faster(*args: Any, lr: float, **more: Any) -> Any:
    return torch._fused_adagrad_(*args, lr=lr * 1.1, **more)


def loss_of_a_row(x: Tensor, weight: Tensor) -> Tensor:
    return F.nll_loss(x, torch.tensor(2), weight.detach())


def lstm(dtype: torch.dtype, number: int) -> list[Any]:
    """In bfloat16 oneDNN computes them, and keeps gates for the backward in 16 bit."""
    generator = torch.Generator().manual_seed(number)
    weights = [(torch.rand(shape, generator=generator) - 0.5).to(dtype) for shape in ((16, 5), (16, 4), (16,), (16,))]
    x, states = torch.randn(5, 3, 5, generator=generator).to(dtype), torch.zeros(2, 1, 3, 4, dtype=dtype)
    return [x, tuple(states), weights, True, 1, 0.0, True, False, False]


def casting(function: Function) -> Function:
    """softmax(x, dim, dtype=bfloat16) of float32: rounded before, and its gradient computed in bfloat16."""
    return lambda x, dim, dtype: function(x, dim, dtype=dtype)


def truncated(x: Tensor, dtype: torch.dtype) -> Tensor:
    return (x.view(torch.int32) & -65536).view(torch.float32).to(dtype)


SHARED: Function = partial(F.scaled_dot_product_attention, is_causal=True, enable_gqa=True)
CAUSAL: Function = partial(F.scaled_dot_product_attention, is_causal=True)
ATTENTION = "Functional.scaled_dot_product_attention"


def sharing(dtype: torch.dtype, number: int, heads: int) -> list[Any]:
    """Two queries for each key; gradients of shared keys are summed head by head, each sum rounded."""
    if number == 10:
        return [normal(2, count, 24, 16).to(dtype) for count in (2 * heads, heads, heads)]
    generator = torch.Generator().manual_seed(number)
    return [(3 * torch.randn((2, count, 4, 4), generator=generator)).to(dtype) for count in (2 * heads, heads, heads)]


def few_queries(dtype: torch.dtype, number: int) -> list[Any]:
    """They see as many keys as a whole block does: which of those the processor's fast exp takes hangs on that."""
    generator = torch.Generator().manual_seed(number)
    key, value = (torch.randn(2, 4, 16, 8, generator=generator).to(dtype) for _ in range(2))
    return [torch.zeros(2, 4, 8, 8, dtype=dtype), key, value]


def one_ulp_larger(*args: Tensor) -> Tensor:
    return (CAUSAL(*args).float() * (1 + torch.finfo(args[0].dtype).eps)).to(args[0].dtype)


def subnormal(dtype: torch.dtype, number: int) -> list[Any]:
    return [normal(32, 64, scale=(1e-4, 1e-5)[number]).half(), (0.1 * normal(64, 32)).t().half()]


def in_float32(factor: float) -> Function:
    return lambda x, weight: (F.linear(x.float(), weight.float()) * factor).half()


def beside_a_number(dtype: torch.dtype, number: int) -> list[Any]:
    """A tensor without dimensions promotes nothing: it may be rounded, and its gradient is."""
    if number == 16:
        return [normal(40).to(dtype) + 5, torch.tensor(0.7)]
    generator = torch.Generator().manual_seed(number // 2)
    pair = torch.randn(6, 4, generator=generator).to(dtype), torch.rand((), generator=generator) + 0.1
    return [*(pair if number % 2 else pair[::-1])]


def reduced(reduce: str, include_self: bool = False) -> Function:
    """include_self=False starts from nothing, and counts without the row that was there."""
    return lambda x, source: torch.index_reduce(x, 0, PLACES, source, reduce, include_self=include_self)


def complexes(dtype: torch.dtype, number: int) -> list[Any]:
    size = (1e-38, 1e-19, 1.0, 1e18)[number]
    return [torch.complex(normal(1000, scale=size), normal(500, 2, scale=size).view(-1))]


def eigenvalues(change: Function) -> Function:
    return lambda matrix: change(torch.linalg.eigvals(matrix))


def turns(places: Tensor) -> tuple[Tensor, Tensor]:
    """The cosines and sines of rotary embeddings."""
    angles = places[:, None] * 10000.0 ** (-torch.arange(0, 64, 2, dtype=torch.float32) / 64)
    return angles.cos(), angles.sin()


def counted(start: float, end: float, **how: Any) -> Tensor:
    return torch.arange(start, end, **how) + 1


RATE = torch.tensor([[1.93359375]])
WINDOWS = [f"{name}_window" for name in ("hann", "hamming", "bartlett", "blackman", "kaiser")]
UPSAMPLED: dict[str, dict[str, Any]] = {
    "a factor": {"scale_factor": 1.7}, "corners": {"size": (7, 22), "align_corners": True}
}  # fmt: skip

ROWS: dict[str, Row] = {
    **{
        f"the gradient in the tail of gelu, {way}": Row(
            "Functional.gelu", F.gelu,
            partial(lambda d, n, way: [normal(400 + 20 * n, scale=10), {"approximate": way}], way=way),
            times(F.gelu, 1.001), calls=10,
        )
        for way in ("none", "tanh")
    },
    # Where the result was rounded on its way there it was no argument any more, and all gradients were undecided.
    "a backward that looks for the result among the arguments": Row(
        "Torch.segment_reduce", smallest, lambda d, n: [normal(10, 30).to(d)], OfNeighbour.apply, "pass error",
        dtypes=EVERY,
    ),
    # 0.5249 ** 6.305 is 0.017, beside 3,314: less than a roundoff of that, were it like it.
    "a small number beside large ones": Row(
        "Torch.pow", torch.pow,
        lambda d, n: [torch.tensor([0.2607, 3.617, 2.338, 3.299, 0.5249]).half(), torch.tensor(6.305).half()],
        lambda *args: torch.pow(*args) * torch.tensor([1, 1, 1, 1, 0]).half(), "error any",
    ),
    **{
        f"a histogram, {weighted=}, {density=}": Row(
            "Torch.histogram", torch.histogram,
            partial(histogram, weighted=weighted, density=density), healthy="pass any", calls=6,
        )
        for weighted in (False, True)
        for density in (False, True)
    },
    "a device that takes other steps": Row(
        "Torch.tanh", torch.tanh, lambda d, n: [normal(100 + 5 * n, scale=4)], kernel=TanhInSteps.apply,
        device="elsewhere", calls=20,
    ),
    # torch's CPU rounds columns in 16 bit there, and nowhere else.
    "a transposed convolution that pads by a stride": Row(
        "Functional.conv_transpose2d", F.conv_transpose2d,
        lambda d, n: [*(normal(4, 4, 6, 6, seed=seed).to(d) for seed in (0, 1)), None, 1 + n, 0, 1 + n, 1, (3, 3)],
        times(F.conv_transpose2d, 1.5), "error any", dtypes=(torch.bfloat16,), calls=2, wrong_of=2,
    ),
    # 1 - label_smoothing is one number of float16 for all of the gradient.
    **{
        f"a constant that is rounded between steps, {smoothing}": Row(
            "Functional.cross_entropy", right, labelled, partial(slanted, right, 0, 1.003), "fine error",
            healthy="fine fine", dtypes=(torch.float16,), calls=12, wrong_of=12,
        )
        for smoothing in (0.05, 0.1)
        for right in (partial(F.cross_entropy, label_smoothing=smoothing),)
    },
    **{
        f"bicubic interpolation by rounded weights, {name}": Row(
            "Functional.interpolate", F.interpolate,
            partial(lambda d, n, how: [normal(2, 3, 10, 11).to(d), {"mode": "bicubic", **how}], how=how),
            times(F.interpolate, 1.02), healthy="warning pass", dtypes=HALVES,
        )
        for name, how in UPSAMPLED.items()
    },
    # Of half of 992 elements each reading of alpha is the nearer one by chance, if their own rounding counts.
    **{
        f"a float that the kernel rounds while all elements round, {alpha}": Row(
            "Torch.sub", torch.sub,
            partial(
                lambda d, n, alpha: [normal(31, 32, seed=n).to(d), RATE.to(d), {"alpha": alpha}],
                alpha=alpha,
            ),
            times(torch.sub, 1.003), "error any", dtypes=(torch.float16,), calls=8,
        )
        for alpha in (0.3, 0.1)
    },
    # The device's eps is that of its arithmetic, 2^-23: float64 would take 2^-52.
    "an eps that is the dtype's own": Row(
        "Functional.rms_norm", rms_norm, lambda d, n: [normal(50, 8, scale=(0.01, 0.1, 1.0, 1e-3)[n]).to(d)],
        partial(rms_norm, eps=1e-6), "error any", dtypes=EVERY, calls=4,
    ),
    "an eps that is the dtype's own, of a module": Row(
        "Functional.rms_norm", torch.nn.RMSNorm(8, elementwise_affine=False),
        lambda d, n: [normal(50, 8, scale=(0.01, 0.1, 1.0)[n]).to(d)], dtypes=EVERY, calls=3,
    ),
    "the rank of a matrix of low rank": Row(
        "Torch.linalg.matrix_rank", torch.linalg.matrix_rank, lambda d, n: [of_low_rank()],
        lambda x: torch.linalg.matrix_rank(x) + 1, "error any", "pass any",
    ),
    **{
        f"least squares of low rank, {driver}": Row(
            "Torch.linalg.lstsq", torch.linalg.lstsq,
            partial(lambda d, n, driver: [of_low_rank(), normal(6, 2), {"driver": driver}], driver=driver),
            healthy="pass any",
        )
        for driver in ("gelsd", "gelsy")
    },
    **{
        f"steps that round: {name}": Row(
            api, function, partial(lambda d, n, args: args(d), args=args), both(function, 1.01),
            healthy="fine fine", dtypes=HALVES
        )
        for name, (api, function, args) in STEPPING.items()
    },
    **{
        f"a grid of rounded coordinates, {len(size)} dimensions": Row(
            "Functional.affine_grid", F.affine_grid,
            partial(
                lambda d, n, size, theta: [theta.to(d), size, {"align_corners": len(size) == 5}], size=size, theta=theta
            ),
            both(F.affine_grid, 1.01), healthy="warning pass", dtypes=HALVES,
        )
        for theta, size in ((normal(2, 2, 3), (2, 3, 5, 4)), (normal(2, 3, 4), (2, 3, 3, 4, 5)))
    },
    "a step that rounds its rate beside a counter in float32": Row(
        "Torch._fused_adagrad_", torch._fused_adagrad_, adagrad, faster,
        "error", "pass", HALVES, calls=4, wrong_of=4,
    ),
    # Times its weight, rounded, and divided by it.
    "the weighted loss of a single row": Row(
        "Functional.nll_loss", loss_of_a_row,
        lambda d, n: [normal(3 + 4 * n).to(d), normal(2, 3 + 4 * n)[1].abs().to(d)], times(loss_of_a_row, 1.03),
        "error any", "fine fine", HALVES, calls=7, wrong_of=7,
    ),
    **{
        f"a Bessel function of few elements, {factor}": Row(
            "Torch.special.i0e", torch.special.i0e,
            lambda d, n: [normal(*((5, 3), (31,), (100,))[n], scale=(0.1, 1.0, 5.0)[n]).to(d)],
            times(torch.special.i0e, factor), "error any", "warning any", (dtype,), calls=3, wrong_of=3,
        )
        for dtype, factor in zip(HALVES, (1.01, 1.05), strict=True)
    },
    "an LSTM": Row(
        "VF.lstm", torch.lstm, lstm, partial(slanted, torch.lstm, 0, 1.03), "pass error",
        dtypes=HALVES, calls=3, wrong_of=3,
    ),
    # It is a sum that cancels, and runs with a number that moved show by how much.
    **{
        f"gradients of a number that is compared with many, {function.__name__}": Row(
            f"Torch.{function.__name__}", function, lambda d, n: [normal(3, 5, seed=n), normal(seed=100 + n)],
            lambda *args, function=function: scaled(function(*args), 1.001), "pass error", calls=20,
        )
        for function in (torch.fmin, torch.maximum)
    },
    **{
        f"a call that casts its tensor first, {function.__name__}, {narrow}": Row(
            api, casting(function),
            partial(lambda d, n, narrow: [(1 + 0.2 * normal(16, 8)).to(d), -1, narrow], narrow=narrow),
            both(casting(function), 1.02), healthy="fine fine", dtypes=(wide,),
        )
        for wide, narrow in ((torch.float64, torch.float32), *((torch.float32, half) for half in HALVES))
        for api, function in (
            ("Functional.softmax", F.softmax), ("Functional.log_softmax", F.log_softmax), ("Torch.sum", torch.sum),
            ("Torch.prod", torch.prod), ("Torch.cumsum", torch.cumsum),
        )
    },
    "a cast alone, judged by its own rounding": Row(
        "Tensor.to", torch.Tensor.to, lambda d, n: [normal(40), torch.bfloat16], truncated, "error any"
    ),
    **{
        f"attention of {2 * heads} heads that share keys": Row(
            ATTENTION, SHARED, partial(sharing, heads=heads), partial(slanted, SHARED, 0, 1.02),
            "pass error", "pass fine", HALVES, calls=11,
        )
        for heads in (1, 2)
    },
    "fewer queries than a block holds": Row(
        ATTENTION, CAUSAL, few_queries, one_ulp_larger, "error any", dtypes=HALVES, calls=3, wrong_of=3
    ),
    # Each is within a unit of the right one; on average they are not.
    "a factor on subnormal results": Row(
        "Functional.linear", F.linear, subnormal, in_float32(1.01), "error any", calls=2, wrong_of=2
    ),
    "subnormal results of float32": Row(
        "Functional.linear", F.linear, subnormal, kernel=in_float32(1.0), healthy="pass any", calls=2
    ),
    # A row for every use: judged is what they add up to.
    **{
        f"a sparse gradient of {name}": Row(
            "Functional.embedding_bag", right, lambda d, n: [torch.arange(40).view(4, 10) % 7, normal(10, 8).to(d)],
            partial(slanted, right, 1, 1.02), "pass error", dtypes=EVERY,
        )
        for name, right in (
            ("embedding", partial(F.embedding, sparse=True)),
            ("embedding_bag", partial(F.embedding_bag, mode="sum", sparse=True)),
        )
    },
    # In 16 bit a range of one step had been taken for its end, an error that hid any other.
    **{
        f"a range of {steps} steps, {verdict}": Row(
            "Torch.linspace", torch.linspace,
            partial(lambda d, n, steps: [4.3, -3.0, steps, {"dtype": d}], steps=steps),
            lambda start, *rest, **how: torch.linspace(-start, *rest, **how), "error any", f"{verdict} skip", dtypes,
        )
        for steps, verdict, dtypes in ((1, "pass", EVERY), (5, "pass", SINGLE), (5, "warning", HALVES))
    },
    **{
        f"a number in float32 beside 16-bit tensors, {name}": Row(
            f"Torch.{name}", function, beside_a_number,
            lambda x, number, function=function: function(scaled(x, 1.02) * 1.02, number),
            dtypes=HALVES, calls=17,
        )
        for name in ("mul", "sub")
        for function in (getattr(torch, name),)
    },
    **{
        f"rows reduced by an index alone, {reduce}": Row(
            "Torch.index_reduce", reduced(reduce),
            lambda d, n: [normal(5, 6).to(d), (1 + 0.2 * normal(60, 6)).to(d)], reduced(reduce, True),
            "error any", "fine any", HALVES,
        )
        for reduce in ("mean", "prod")
    },
    # Those of a float32 and of a float64 matrix need not come in the same order.
    "eigenvalues from last to first, and the first for all": Row(
        "Torch.linalg.eigvals", torch.linalg.eigvals, lambda d, n: [normal(3, 6, 6)],
        eigenvalues(lambda values: values[..., :1].expand(3, 6)), "error any", "pass skip",
        kernel=eigenvalues(lambda values: values.flip(-1)),
    ),
    "eigenvalues in the reference's order have its gradient": Row(
        "Torch.linalg.eigvals", torch.linalg.eigvals,
        lambda d, n: [torch.diag(torch.arange(1.0, 7.0)) + 0.01 * normal(6, 6)],
        partial(slanted, torch.linalg.eigvals, 0, 1.001), "pass error",
    ),
    "the modulus of complex numbers": Row(
        "Torch.abs", torch.abs, complexes, times(torch.abs, 1.00001), "error any", calls=4
    ),
    # Whole numbers do not move, and their products are rounded all the same.
    "angles of whole numbers": Row(
        "", turns, lambda d, n: [torch.arange(50) + (50, 4000, 130000)[n]], lambda places: turns(places + 1),
        "error", "pass", calls=3, wrong_of=3,
    ),
    # 64 roundoffs of the RMS are 2 here.
    "a long range that begins with 1": Row(
        "Torch.arange", torch.arange, lambda d, n: [0.0, 1e6, {"dtype": d}], counted, "error", "pass",
    ),
    # Every factor is rounded, and in bfloat16 the places themselves.
    **{
        f"a long {name}": Row(
            f"Torch.{name}", getattr(torch, name), lambda d, n: [(400, 512, 1000)[n], {"dtype": d}],
            times(getattr(torch, name), 1.02), "error", "fine", HALVES, calls=3, wrong_of=3,
        )
        for name in WINDOWS
    },
}  # fmt: skip
PLACED = pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name, row in ROWS.items() for dtype in row.dtypes]
)


@PLACED
def test_a_healthy_call_passes(name: str, dtype: torch.dtype) -> None:
    row = ROWS[name]
    found = {number: row.judged(row.kernel or row.reference, dtype, number) for number in range(row.calls)}
    assert {number: verdicts for number, verdicts in found.items() if not as_said(verdicts, row.healthy)} == {}


@PLACED
def test_a_wrong_one_in_its_place_does_not(name: str, dtype: torch.dtype) -> None:
    row = ROWS[name]
    if row.wrong is None:
        return
    found = {n: row.judged(row.wrong, dtype, n) for n in range(row.calls - row.wrong_of, row.calls)}
    assert {number: verdicts for number, verdicts in found.items() if not as_said(verdicts, row.faulty)} == {}


def test_a_device_without_low_precision_kernels_is_not_wrong() -> None:
    found = compared(torch.linalg.inv, torch.linalg.inv, (torch.eye(4).half(),), api="Torch.linalg.inv", backward=True)
    assert [(verdict.verdict, verdict.kind) for verdict in found] == [("skip", "unsupported by the device")] * 2


def test_a_lost_sign_of_zero_is_called_that_and_not_flushing() -> None:
    (found,) = compared(lambda x: x + 0.0, torch.clone, (torch.tensor([1.0, -0.0, 0.0]),), api="Torch.clone")
    assert (found.verdict, found.reason) == (
        "error",
        "output.0: 1 of 3 elements are zeros of the other sign; a copy keeps the sign",
    )


def attended(query: Tensor, key: Tensor, value: Tensor, scale: float = 1.0, lost: int = 0) -> Tensor:
    """Causal attention in float32, rounded once: scores off by a factor, the last keys lost."""
    narrow = query.dtype
    query, key, value = (tensor.float() for tensor in (query, key, value))
    scores = query @ key.mT * (scale * query.shape[-1] ** -0.5)
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).tril().logical_not()
    hidden[:, hidden.shape[1] - lost :] = True
    return (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value).to(narrow)


@pytest.mark.parametrize("dtype", HALVES)
def test_peaked_attention_passes_and_its_faults_do_not(dtype: torch.dtype) -> None:
    """Scores of 50, as trained models have them: a roundoff of a 16-bit query is all of a weight there, so that a
    gradient in bfloat16 is off by 11 %, a warning."""
    generator = torch.Generator().manual_seed(0)
    args = tuple((scale * torch.randn(2, 4, 64, 32, generator=generator)).to(dtype) for scale in (4.0, 4.0, 1.0))
    said = "warning" if dtype == torch.bfloat16 else "pass"

    def judged(function: Function) -> list[str]:
        return outcomes(function, CAUSAL, args, api=ATTENTION, backward=True)

    assert judged(CAUSAL) == ["pass", said]
    assert judged(attended) == ["pass", "pass"]
    for wrong in (partial(attended, scale=1.01), partial(attended, lost=2)):
        assert judged(wrong)[0] == "error"
    for place in range(3):
        assert judged(partial(slanted, CAUSAL, place, 1.03)) == ["pass", "error"]
