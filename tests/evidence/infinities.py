"""Calls whose float64 reference has infinities and NaN: poles, overflows, masks of -inf, NaN that is handed on.

Each puts its odd inputs first and numbers of a usual size behind them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from msgspec import Struct

COUNT = 300
INF, NAN = math.inf, math.nan
Function = Callable[..., Any]


class Case(Struct, frozen=True):
    """A function, its arguments in a dtype, and the name that a dump has for it; "" for a function of a user."""

    function: Function
    inputs: Callable[[torch.dtype], Sequence[Any]]
    api: str = ""


def numbers(dtype: torch.dtype, *odd: float, low: float = 0.1, high: float = 0.9, seed: int = 0) -> torch.Tensor:
    """300 numbers between low and high, the first of which are those given."""
    generator = torch.Generator().manual_seed(seed)
    usual = torch.rand(COUNT, generator=generator, dtype=torch.float64) * (high - low) + low
    usual[: len(odd)] = torch.tensor(odd, dtype=torch.float64)
    return usual.to(dtype)


def of(function: Function, *odd: float, api: str = "", low: float = 0.1, high: float = 0.9) -> Case:
    """A function of one argument."""
    return Case(function, lambda dtype: [numbers(dtype, *odd, low=low, high=high)], api)


def mask(dtype: torch.dtype) -> torch.Tensor:
    """10 x 30 zeros, of which the last of each row, and a whole row, are -inf."""
    found = torch.zeros(10, 30, dtype=dtype)
    found[:, 25:] = -INF
    found[3] = -INF
    return found


def rows(dtype: torch.dtype) -> torch.Tensor:
    return numbers(dtype, low=-1).reshape(10, 30)


def half_mask(dtype: torch.dtype) -> torch.Tensor:
    found = mask(dtype)
    found[3] = 0
    return found


def masked_log_softmax(x: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(x + masked, -1)


def masked_softmax(x: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    return F.softmax(x + masked, -1)


def equal_pairs(dtype: torch.dtype) -> list[torch.Tensor]:
    """Two arguments whose first elements are equal."""
    one, other = numbers(dtype), numbers(dtype, seed=1)
    other[0] = one[0]
    return [one, other]


CASES: dict[str, Case] = {
    "rsqrt(0)": of(torch.rsqrt, 0.0, INF),
    "log(0), by name": of(torch.log, 0.0, INF, -1.0, api="Torch.log"),
    "1 / 0": of(lambda x: 1 / x, 0.0, -0.0, INF),
    "x + (-inf)": Case(lambda x, y: x + y, lambda dtype: [numbers(dtype), numbers(dtype, -INF, INF, NAN)]),
    "log_softmax of x + mask": Case(masked_log_softmax, lambda dtype: [rows(dtype), half_mask(dtype)]),
    "softmax of a row of -inf": Case(masked_softmax, lambda dtype: [rows(dtype), mask(dtype)]),
    "atanh(1)": of(torch.atanh, 1.0),
    "atanh(1), by name": of(torch.atanh, 1.0, api="Torch.atanh"),
    "exp of much": of(torch.exp, 1e4, -INF, NAN, INF),
    "sum of a row with -inf": Case(lambda x: x.reshape(10, 30).sum(-1), lambda dtype: [numbers(dtype, -INF, low=-1)]),
    "linear with an infinity": Case(
        F.linear,
        lambda dtype: [numbers(dtype, INF).reshape(10, 30), numbers(dtype, seed=1).reshape(10, 30)],
        "Functional.linear",
    ),
    "x * inf": Case(lambda x, y: x * y, lambda dtype: [numbers(dtype, 0.0), numbers(dtype, INF, INF, -INF)]),
    "relu(inf)": of(torch.relu, INF, NAN, api="Torch.relu"),
    "0 / 0": Case(lambda x, y: x / y, lambda dtype: [numbers(dtype, 0.0, 1.0), numbers(dtype, 0.0, 0.0)], "Torch.div"),
    "rms norm with a NaN": Case(
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)),
        lambda dtype: [numbers(dtype, NAN, low=-1).reshape(10, 30)],
    ),
    "cumsum with inf": of(lambda x: torch.cumsum(x, 0), *[0.5] * 250, -INF, api="Torch.cumsum"),
    "a pole of equal arguments": Case(lambda x, y: 1 / (x - y), equal_pairs),
}
# What stands in the place of an infinity or of NaN. The largest number of the dtype is `None`.
WRONG: dict[str, float | None] = {"NaN": NAN, "inf": INF, "-inf": -INF, "0": 0.0, "1.5": 1.5, "largest": None}


def wrong_answers(right: float) -> list[str]:
    """The names of what is wrong where the reference has this."""
    same = "NaN" if math.isnan(right) else "inf" if right > 0 else "-inf"
    return [name for name in WRONG if name != same]


def spoiled(function: Function, place: int, answer: str) -> Function:
    """The function with another answer in one element, but in float64."""

    def wrong(*args: Any, **kwargs: Any) -> torch.Tensor:
        result: torch.Tensor = function(*args, **kwargs)
        if args[0].dtype is torch.float64:
            return result
        value = WRONG[answer]
        flat = result.reshape(-1).clone()
        flat[place] = torch.finfo(result.dtype).max if value is None else value
        return flat.reshape(result.shape)

    return wrong


def places(function: Function, inputs: Sequence[Any]) -> list[tuple[int, float]]:
    """The first element of each kind, +inf, -inf and NaN, that float64 gives, and what it is."""
    found: dict[str, tuple[int, float]] = {}
    right = function(*(value.double() for value in inputs)).reshape(-1).tolist()
    for place, value in enumerate(right):
        if not math.isfinite(value):
            found.setdefault(str(value), (place, value))
    return list(found.values())
