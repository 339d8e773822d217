from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.classes.distributions import known
from pytest_probe.standards.classes.random import Random
from tests.support.asking import comparison

SHAPE = (40, 50)
ZEROS = np.zeros(SHAPE, np.float32)
Draw = Callable[[np.random.Generator], AnyArray]

CALLS: dict[str, tuple[str, tuple[Any, ...], Draw]] = {
    "rand": ("Torch.rand", (SHAPE,), lambda r: r.random(SHAPE)),
    "uniform_": ("Tensor.uniform_", (ZEROS, -3.0, 5.0), lambda r: r.uniform(-3, 5, SHAPE)),
    "randn": ("Torch.randn", (SHAPE,), lambda r: r.standard_normal(SHAPE)),
    "normal_": ("Tensor.normal_", (ZEROS, 2.0, 0.5), lambda r: r.normal(2, 0.5, SHAPE)),
    "normal of numbers": ("Torch.normal", (1.0, 2.0, SHAPE), lambda r: r.normal(1, 2, SHAPE)),
    "normal of tensors": (
        "Torch.normal", (np.arange(2000, dtype=np.float32).reshape(SHAPE), ZEROS + 3),
        lambda r: r.normal(np.arange(2000).reshape(SHAPE), 3),
    ),
    "log_normal_": ("Tensor.log_normal_", (ZEROS,), lambda r: r.lognormal(1, 2, SHAPE)),
    "exponential_": ("Tensor.exponential_", (ZEROS, 2.0), lambda r: r.exponential(0.5, SHAPE)),
    "cauchy_": ("Tensor.cauchy_", (ZEROS, 1.0, 2.0), lambda r: 1 + 2 * r.standard_cauchy(SHAPE)),
    "geometric_": ("Tensor.geometric_", (ZEROS, 0.2), lambda r: r.geometric(0.2, SHAPE)),
    "bernoulli": ("Torch.bernoulli", (ZEROS + 0.25,), lambda r: r.random(SHAPE) < 0.25),
    "bernoulli_": ("Tensor.bernoulli_", (ZEROS,), lambda r: r.random(SHAPE) < 0.5),
    "poisson": ("Torch.poisson", (ZEROS + 3,), lambda r: r.poisson(3, SHAPE)),
    "randint": ("Torch.randint", (2, 9, SHAPE), lambda r: r.integers(2, 9, SHAPE)),
    "randint to": ("Torch.randint", (9, SHAPE), lambda r: r.integers(0, 9, SHAPE)),
    "randint of tensors": ("Torch.randint", (np.array(2), np.array(9), SHAPE), lambda r: r.integers(2, 9, SHAPE)),
    "randint_like": ("Torch.randint_like", (ZEROS, 3, 20), lambda r: r.integers(3, 20, SHAPE)),
    "randperm": ("Torch.randperm", (1000,), lambda r: r.permutation(1000)),
    "multinomial": ("Torch.multinomial", (np.ones(20, np.float32), 500, True), lambda r: r.integers(0, 20, 500)),
    "multinomial once": ("Torch.multinomial", (np.ones(20, np.float32), 10), lambda r: r.permutation(20)[:10]),
}  # fmt: skip
WHOLE = ("randint", "randint to", "randint_like", "randperm", "multinomial", "multinomial once")


def judge(name: str, values: Any, dtype: str = "float32") -> OutputVerdict:
    api, args, _ = CALLS[name]
    return Random().judge(comparison(values, values, api=api, args=args, dtype="int64" if name in WHOLE else dtype))


def drawn(name: str, seed: int = 0) -> AnyArray:
    return np.array(CALLS[name][2](np.random.default_rng(seed)), dtype=np.float64)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", CALLS)
def test_right_draws_pass(name: str, dtype: str) -> None:
    for seed in range(10):
        found = judge(name, drawn(name, seed), dtype)
        assert (found.verdict, found.standard) == ("pass", "random")
        drew = f"{math.prod(found.shape):,} of 100,000 draws"
        assert found.reason == f"too few draws to detect an error of a few per cent: {drew}"


def test_one_rare_number_among_few_is_chance() -> None:
    """Once in 3,000 outputs of ten draws one is beyond 4, and fourth powers see nothing else."""
    generator = np.random.default_rng(1)
    for rare in (4.2, -4.5):
        values = generator.standard_normal(10)
        values[3] = rare
        assert (
            Random().judge(comparison(values, values, api="Torch.randn", args=(10,), dtype="float32")).verdict == "pass"
        )


@pytest.mark.parametrize("name", ["rand", "randn", "normal_", "exponential_", "bernoulli", "randint"])
def test_numbers_that_come_again_are_an_error(name: str) -> None:
    """No row is that before it: the second half is the first."""
    values = drawn(name)
    values[20:] = values[:20]
    found = judge(name, values)
    assert (found.verdict, found.reason[:36]) == ("error", "the values repeat 1,000 elements lat")


@pytest.mark.parametrize("name", CALLS)
def test_an_unwritten_tail_is_an_error(name: str) -> None:
    values = drawn(name)
    values.reshape(-1)[-values.size // 4 :] = 0
    assert judge(name, values).verdict == "error"


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"bernoulli", "bernoulli_", "poisson", "multinomial"}))
def test_a_stale_row_is_an_error(name: str) -> None:
    values = drawn(name)
    values[-1] = values[-2]
    found = judge(name, values)
    assert found.verdict == "error"
    # Means that differ from row to row show in the numbers themselves.
    if values.ndim == 2 and name != "normal of tensors":
        assert found.reason == "row 39 repeats the row before it"


@pytest.mark.parametrize(
    ("name", "draw", "reason"),
    [
        ("poisson", lambda r: np.minimum(r.poisson(3, (400, 400)), 9), "cut off: no value above"),
        ("poisson", lambda r: r.binomial(60, 0.05, (400, 400)), "wrong distribution: "),
        ("geometric_", lambda r: np.minimum(r.geometric(0.2, (400, 400)), 40), "cut off: no value above"),
        ("randn", lambda r: r.random((12, 400, 400)).sum(0) - 6, "wrong distribution: tails off by"),
        ("randn", lambda r: 1.02 * r.standard_normal((400, 400)), "wrong distribution: width off by"),
        ("randn", lambda r: 0.02 + r.standard_normal((400, 400)), "wrong distribution: mean off by"),
        ("exponential_", lambda r: 1.04 * r.exponential(0.5, (400, 400)), "wrong distribution: "),
    ],
)
def test_many_draws_tell_what_is_a_few_per_cent_off(name: str, draw: Any, reason: str) -> None:
    api, (first, *rest), _ = CALLS[name]
    large = (400, 400) if isinstance(first, (int, tuple)) else np.zeros((400, 400), np.float32) + np.ravel(first)[0]
    for values, wanted in ((draw(np.random.default_rng(3)), "error"), (healthy_draws(name), "pass")):
        found = Random().judge(comparison(values, values, api=api, args=(large, *rest), dtype="float32"))
        assert (found.verdict, found.reason.startswith(reason)) == (wanted, wanted == "error"), found.reason


def healthy_draws(name: str) -> AnyArray:
    """160,000 draws; the calls' own draw 2,000 each."""
    draws = [np.ravel(drawn(name, seed)) for seed in range(80)]
    return np.concatenate(draws).reshape(400, 400)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("randn", lambda x: x * 1.25, "width off by"),
        ("randn", lambda x: x + 0.25, "wrong distribution"),
        ("rand", lambda x: x**2, "Kolmogorov-Smirnov distance"),
        ("rand", lambda x: x * 1.01, "values are impossible"),
        ("rand", lambda x: np.where(x == x.max(), np.nan, x), "1 values are impossible, for example nan at"),
        ("exponential_", lambda x: x * 2, "wrong distribution"),
        ("geometric_", lambda x: x + 0.5, "2,000 values are impossible"),
        ("randint", lambda x: x + 1, "values are impossible"),
        ("bernoulli", lambda x: 1 - x, "ones of 2,000 where 500 are expected"),
        ("bernoulli", lambda x: x * 2, "values are impossible"),
        ("poisson", lambda x: x + 1, "where"),
        ("poisson", lambda x: x - 0.5, "values are impossible"),
        ("randperm", lambda x: np.sort(x), "in order"),
        ("randperm", lambda x: x * 0, "no permutation of 0 to 999"),
        ("multinomial", lambda x: x + 1, "an index beyond the 20 categories"),
        ("multinomial", lambda x: x // 4, "category 0: "),
        ("multinomial once", lambda x: x * 0, "a category was drawn twice"),
    ],
)
def test_wrong_draws_are_errors(name: str, change: Callable[[AnyArray], AnyArray], reason: str) -> None:
    found = judge(name, change(drawn(name)))
    assert found.verdict == "error"
    assert reason in found.reason


def test_chances_of_0_and_1_leave_no_choice() -> None:
    chances = np.tile(np.array([0.0, 1.0, 0.5, 0.5], np.float32), 100)
    right = np.tile([0, 1, 0, 1], 100)
    for values, verdict in ((right, "pass"), (np.roll(right, 1), "error")):
        asked = comparison(values, values, api="Torch.bernoulli", args=(chances,), dtype="float32")
        assert Random().judge(asked).verdict == verdict


def test_a_category_of_weight_0_is_never_drawn() -> None:
    weights = np.array([0.0, 1.0, 1.0], np.float32)
    for values, verdict in (([1, 2, 1], "pass"), ([1, 0, 1], "error")):
        asked = comparison(np.array(values), np.array(values), api="Torch.multinomial", args=(weights, 3, True))
        assert Random().judge(asked).verdict == verdict


def test_infinity_where_the_dtype_ends() -> None:
    values = drawn("cauchy_")
    values[3, 4] = -1e9
    assert judge("cauchy_", values, "float16").verdict == "pass"


def test_a_deviation_of_0_is_no_distribution() -> None:
    asked = comparison(ZEROS, ZEROS, api="Torch.normal", args=(ZEROS, ZEROS))
    assert Random().judge(asked).verdict == "pass"


def test_draws_without_a_known_distribution() -> None:
    assert not known(comparison(ZEROS, ZEROS, api="Torch.svd_lowrank"))
    assert not known(comparison(ZEROS.astype(np.complex64), ZEROS, api="Torch.randn"))


# Elements from which on a part of the draws is judged, and all are counted.
MANY = 2**21
LARGE: dict[str, tuple[str, tuple[Any, ...], Draw]] = {
    "rand": ("Torch.rand", ((2048, 1024),), lambda r: r.random(MANY)),
    "randn": ("Torch.randn", ((2048, 1024),), lambda r: r.standard_normal(MANY)),
    "randint": ("Torch.randint", (0, 32000, (2048, 1024)), lambda r: r.integers(0, 32000, MANY)),
    "two numbers": ("Torch.randint", (0, 2, (2048, 1024)), lambda r: r.integers(0, 2, MANY)),
    "nearly always one": ("Tensor.geometric_", (ZEROS, 0.99999), lambda r: r.geometric(0.99999, MANY)),
}


def judged_large(
    name: str, fault: Callable[[AnyArray], object], dtype: str = "float32", seed: int = 0
) -> OutputVerdict:
    api, args, draw = LARGE[name]
    values = draw(np.random.default_rng(seed)).astype(np.float64)
    fault(values)
    dtype = "int64" if "randint" in api else dtype
    return Random().judge(comparison(values.reshape(2048, 1024), ZEROS, api=api, args=args, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", LARGE)
def test_many_right_draws_pass(name: str, dtype: str) -> None:
    found = [judged_large(name, lambda _: None, dtype, seed) for seed in range(3)]
    assert [verdict.reason for verdict in found if verdict.verdict != "pass"] == []


def again(values: AnyArray) -> None:
    values[MANY // 2 :] = values[: MANY // 2]


def row_again(values: AnyArray) -> None:
    values[-1024:] = values[-2048:-1024]


FAULTS: dict[str, Callable[[AnyArray], object]] = {
    "a tail of a 16th that was not written": lambda values: values[-MANY // 16 :].fill(0),
    "one that is not a number, or impossible": lambda values: values[777_777:777_778].fill(-1e9),
    "the second half is the first": again,
    "the last row is the one before": row_again,
    "cut off": lambda values: np.clip(values, None, np.quantile(values, 0.999), out=values),
    "a sixteenth is in order": lambda values: values[: MANY // 16].sort(),
}


@pytest.mark.parametrize("name", ["rand", "randint"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_part_of_many_draws_is_found(fault: str, name: str) -> None:
    assert judged_large(name, FAULTS[fault]).verdict == "error"


def test_one_nan_among_many_draws_is_found() -> None:
    for dtype in ("float32", "bfloat16"):
        assert judged_large("randn", lambda values: values[777_777:777_778].fill(np.nan), dtype).verdict == "error"
