from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pytest_probe.errors import Unsupported
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, round_to, widen
from pytest_probe.standards.auto import Auto
from pytest_probe.standards.classes.random import Random
from tests.support.asking import comparison, normal

X = normal(50, 40).astype(np.float32)
draws = np.random.default_rng(1).random((50, 40))


def judge(
    actual: Any, p: float = 0.1, values: Any = X, api: str = "Functional.dropout", dtype: str = "float32", **more: Any
) -> OutputVerdict:
    asked = {"args": (round_to(values, dtype), p, True), "name": "output.0", **more}
    return Random().judge(comparison(actual, np.zeros(np.shape(values)), api=api, dtype=dtype, **asked))


def dropped(p: float, values: AnyArray = X) -> AnyArray:
    return np.asarray(np.where(draws < p, 0.0, widen(values) / (1 - p)))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_any_pattern_of_the_right_share_passes(p: float) -> None:
    found = judge(dropped(p), p)
    assert (found.verdict, found.standard) == ("pass", "random")


def test_the_kept_elements_are_judged() -> None:
    assert judge(dropped(0.1) * 1.0001).verdict == "error"
    wrong = dropped(0.1)
    wrong[draws >= 0.1] = X[draws >= 0.1]
    assert judge(wrong).verdict == "error"


@pytest.mark.parametrize("p", [0.2, 0.05])
def test_a_wrong_share_is_an_error(p: float) -> None:
    wrong = np.where(draws < p, 0.0, widen(X) / 0.9)
    found = judge(wrong)
    assert found.verdict == "error"
    assert (
        found.reason == f"{np.count_nonzero(draws < p)} of 2,000 elements are dropped where p = 0.1 explains 200 +- 80"
    )


def test_rows_that_were_never_written_are_an_error_though_their_share_is_right() -> None:
    wrong = dropped(0.1)
    wrong[-1] = 0
    found = judge(wrong)
    assert found.verdict == "error"
    assert re.fullmatch(r"4\d elements in a row are dropped where p = 0.1 explains 13", found.reason)


@pytest.mark.parametrize(("p", "lag"), [(0.1, 200), (0.5, 40), (0.9, 1000)])
def test_a_pattern_that_repeats_itself_is_an_error(p: float, lag: int) -> None:
    values = np.resize(X, (100, 40))
    pattern = np.resize(np.random.default_rng(2).random(lag), (100, 40))
    found = judge(np.where(pattern < p, 0.0, widen(values) / (1 - p)), p, values=values)
    assert found.verdict == "error"
    assert re.match(r"the values repeat [\d,]+ elements later: correlation 0\.\d+", found.reason)


def test_chance_seldom_looks_like_a_pattern_that_repeats_itself() -> None:
    for seed in range(50):
        pattern = np.random.default_rng(seed).random((50, 40))
        assert judge(np.where(pattern < 0.1, 0.0, widen(X) / 0.9)).verdict == "pass"


def test_zeros_of_the_input_tell_nothing() -> None:
    values = np.where(X < 0.5, 0, X)
    assert judge(dropped(0.1, values), values=values).verdict == "pass"


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_may_be_multiplied_by_zero_or_dropped(special: float) -> None:
    values = np.where(np.arange(X.size).reshape(X.shape) % 3 == 0, special, X).astype(np.float32)
    with np.errstate(invalid="ignore"):
        multiplied = widen(values) * np.where(draws < 0.5, 0.0, 2.0)
    assert judge(multiplied, 0.5, values).verdict == "pass"
    assert judge(dropped(0.5, values), 0.5, values).verdict == "pass"
    assert judge(np.where(np.isfinite(values), multiplied, 0.0), 0.5, values).verdict == "error"
    seed = np.ones_like(values)
    gradient = np.where(draws < 0.5, 0.0, 2.0)
    assert backward(gradient, seed, multiplied, values) == "pass"
    assert backward(gradient * 1.001, seed, multiplied, values) == "error"


def test_nothing_dropped_without_training() -> None:
    wanted: dict[str, Any] = {"args": (X, 0.5, False)}
    assert Random().judge(comparison(X, X, api="Functional.dropout", **wanted)).verdict == "pass"
    assert (
        Random().judge(comparison(dropped(0.5), X, api="Functional.dropout", dtype="float32", **wanted)).verdict
        == "error"
    )


@pytest.mark.parametrize(("p", "wanted"), [(0.0, X), (1.0, np.zeros_like(X))])
def test_all_or_nothing(p: float, wanted: AnyArray) -> None:
    asked: dict[str, Any] = {"api": "Functional.dropout", "args": (X, p, True)}
    assert Random().judge(comparison(wanted, wanted, **asked)).verdict == "pass"
    assert Random().judge(comparison(wanted + 1, wanted, dtype="float32", **asked)).verdict == "error"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_kernels_may_round_the_factor_first(dtype: str) -> None:
    values = widen(round_to(X, dtype))
    factor = float(widen(round_to(1 / 0.9, dtype)))
    for number in (1 / 0.9, factor):
        assert judge(np.where(draws < 0.1, 0, values * number), values=values, dtype=dtype).verdict == "pass"
    assert judge(np.where(draws < 0.1, 0, values * factor * 1.002), values=values, dtype=dtype).verdict == "error"


def test_a_witness_draws_another_pattern_and_is_not_asked() -> None:
    assert judge(dropped(0.1) * 1.01, on_cpu=False, cpu_result=lambda: X).verdict == "error"


# Channels


def channels(name: str, dims: tuple[int, ...], count: int) -> tuple[AnyArray, AnyArray]:
    values = normal(*dims).astype(np.float32)
    kept = np.random.default_rng(2).random(dims[:count]) >= 0.3
    return values, widen(values) / 0.7 * kept.reshape(*dims[:count], *[1] * (len(dims) - count))


@pytest.mark.parametrize(
    ("name", "dims", "count"),
    [
        ("dropout1d", (20, 30, 4), 2),
        ("dropout1d", (300, 4), 1),
        ("dropout2d", (20, 30, 2, 2), 2),
        ("dropout3d", (20, 30, 2, 2, 2), 2),
        ("dropout3d", (300, 2, 2, 2), 1),
    ],
)
def test_channels_are_dropped_as_a_whole(name: str, dims: tuple[int, ...], count: int) -> None:
    values, right = channels(name, dims, count)
    assert judge(right, 0.3, values, f"Functional.{name}").verdict == "pass"
    wrong = right.copy()
    wrong.reshape(-1)[np.flatnonzero(right)[0]] = 0
    found = judge(wrong, 0.3, values, f"Functional.{name}")
    assert (found.verdict, found.reason) == ("error", "a channel is dropped in part")


# Gradients


def backward(gradient: AnyArray, seed: AnyArray, forward: AnyArray, values: AnyArray = X) -> str:
    more: Any = {"direction": "backward", "forward": {"output.0": forward.astype(np.float32)}}
    return judge(gradient, 0.5, values, incoming={"output.0": seed}, name="grad.input.0", **more).verdict


def test_the_gradient_has_the_forwards_pattern() -> None:
    seed = normal(50, 40, seed=3).astype(np.float32)
    kept = draws >= 0.5
    assert backward(seed / 0.5 * kept, seed, X / 0.5 * kept) == "pass"
    assert backward(seed / 0.5 * ~kept, seed, X / 0.5 * kept) == "error"
    assert backward(seed / 0.5 * kept * 1.0001, seed, X / 0.5 * kept) == "error"


@pytest.mark.parametrize("api", ["Functional.gumbel_softmax", "Tensor.random_", "Torch.svd_lowrank"])
def test_other_random_values_cannot_be_judged(api: str) -> None:
    with pytest.raises(Unsupported, match="gives random values") as caught:
        judge(X, api=api)
    assert caught.value.kind == "random values"


def test_rows_that_keep_all_are_an_error_though_their_share_is_right() -> None:
    wrong = dropped(0.5)
    wrong[-2:] = 2 * X[-2:]
    found = judge(wrong, p=0.5)
    assert found.verdict == "error"
    assert "elements in a row are kept where p = 0.5 explains" in found.reason
    assert judge(dropped(0.5), p=0.5).verdict == "pass"


def test_memory_as_it_was_found_passes_whatever_it_holds() -> None:
    found = Auto().judge(comparison([1e30, float("nan")], [0.0, 0.0], api="Torch.empty", dtype="float32"))
    assert (found.verdict, found.standard) == ("pass", "uninitialised")


def test_zeros_are_not_memory_as_it_was_found() -> None:
    assert Auto().judge(comparison([1e-30], [0.0], api="Torch.zeros", dtype="float32")).verdict == "error"
