from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from pytest_probe import frameworks
from pytest_probe.features.fuzz.drawn import DrawnCall
from pytest_probe.features.fuzz.from_records import learnt
from pytest_probe.features.fuzz.regimes import REGIMES, Limits, floats
from pytest_probe.features.fuzz.strategy import calls
from pytest_probe.features.fuzz.templates import (
    Pattern,
    Sizes,
    Template,
    TensorSlot,
    table,
    template_from_table,
    tensor_slot,
)
from pytest_probe.model.dump import Call, TensorSpec, named_tensors
from pytest_probe.numerics.dtypes import float_format, numpy_dtype

SIGNATURES = frameworks.signatures()


def drawn(template: Template, examples: int = 60) -> list[DrawnCall]:
    found: list[DrawnCall] = []

    @settings(max_examples=examples, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(calls([template]))
    def draw(call: DrawnCall) -> None:
        found.append(call)

    draw()
    return found


def test_inner_sizes_of_a_product_are_equal() -> None:
    for call in drawn(template_from_table("Torch.mm", SIGNATURES)):
        first, second = call.args
        assert first.shape[1] == second.shape[0]


def test_an_index_is_within_the_table_that_it_names() -> None:
    for call in drawn(template_from_table("Functional.embedding", SIGNATURES)):
        described = call.call()
        index, weight = described.args
        if weight.shape[0] and index.size:
            values = call.arguments(described).args[0].array
            assert 0 <= values.min() <= values.max() < weight.shape[0]


def test_draws_have_empty_tensors_layouts_and_regimes() -> None:
    found = [call.args[0] for call in drawn(template_from_table("Torch.exp", SIGNATURES), 300)]
    assert any(0 in tensor.shape for tensor in found)
    assert {"transposed", "sliced", "offset"} <= {tensor.layout for tensor in found}
    assert len({tensor.regime for tensor in found}) > 12
    assert {len(tensor.shape) for tensor in found} >= {0, 1, 2, 3, 4}


def test_elements_that_do_not_meet_have_regimes_of_their_own() -> None:
    regimes = [call.args[0].regime for call in drawn(template_from_table("Torch.exp", SIGNATURES), 100)]
    assert 30 < regimes.count("mixed") < 70
    assert "mixed" not in {
        call.args[0].regime for call in drawn(template_from_table("Functional.softmax", SIGNATURES), 100)
    }


def test_small_calls_of_other_regimes_come_first() -> None:
    found = drawn(template_from_table("Functional.softmax", SIGNATURES, ("float32",)), 200)[:20]
    assert len({call.args[0].regime for call in found if call.args[0].shape == (1,)}) >= 8


def record(*args: Any, **kwargs: Any) -> Call:
    return Call(args, kwargs, None, None)


def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(dtype, shape, 3.0, -3.0, 0.0, float(TensorSpec(dtype, shape).size) ** 0.5)


def test_calls_around_a_record_keep_its_plain_arguments_types() -> None:
    (template,) = learnt("Functional.softmax", SIGNATURES, [record(spec(4, 16), dim=-1)])
    assert all(type(call.kwargs["dim"]) is int for call in drawn(template))
    assert any(call.args[0].shape == (4, 16) for call in drawn(template, 500))


def test_sizes_that_are_equal_in_a_record_of_an_unknown_api_stay_equal() -> None:
    (template,) = learnt("Torch.cdist", SIGNATURES, [record(spec(5, 3), spec(7, 3))])
    for call in drawn(template):
        shapes = [found.shape for _, found in named_tensors(call.call().args)]
        assert shapes[0][1] == shapes[1][1]


def test_a_record_that_the_table_does_not_describe_is_learnt_by_its_sizes() -> None:
    (template,) = learnt("Functional.linear", SIGNATURES, [record(spec(5, 3), spec(3))])
    assert template.symbols == ("d5", "d3")


@pytest.mark.parametrize(
    ("text", "sizes", "shape"),
    [
        ("n 3", {"n": 5}, (5, 3)),
        ("*b k", {"*b": (2, 4), "k": 7}, (2, 4, 7)),
        ("n g*c", {"n": 1, "g": 2, "c": 3}, (1, 6)),
        ("~s", {"*s": (2, 3)}, (2, 3)),
        ("*s", {"*s": ()}, ()),
    ],
)
def test_a_pattern_has_the_shape_of_its_symbols(text: str, sizes: Sizes, shape: tuple[int, ...]) -> None:
    assert Pattern.of(text).shape(sizes) == shape


def test_a_partner_may_have_ones_and_miss_them_at_the_left() -> None:
    partner = Pattern.of("~s")
    sizes: Sizes = {"*s": (2, 3, 4)}
    assert partner.shape(sizes, {"s": (True, False, True, False)}) == (1, 3, 1)
    assert partner.shape(sizes, {"s": (True, True, False, True)}) == (4,)


@pytest.mark.parametrize(
    ("text", "shape", "sizes"),
    [
        ("*b k", (2, 4, 7), {"*b": (2, 4), "k": 7}),
        ("n g*c h", (1, 6, 9), {"n": 1, "h": 9}),
        ("n n", (3, 4), None),
        ("n k", (3,), None),
        ("n 3", (5, 4), None),
        ("*b *n", (3, 4), {}),
    ],
)
def test_a_recorded_shape_tells_the_sizes(text: str, shape: tuple[int, ...], sizes: Sizes | None) -> None:
    assert Pattern.of(text).read(shape) == sizes


def test_words_of_a_tensor() -> None:
    assert tensor_slot("int64 *b") == TensorSlot(Pattern.of("*b"), "int64", False, False)
    assert tensor_slot("list *s") == TensorSlot(Pattern.of("*s"), "", True, False)
    assert tensor_slot("g*c ?") == TensorSlot(Pattern.of("g*c"), "", False, True)


def test_symbols_of_an_entry_are_those_of_its_tensors() -> None:
    for api, entry in table().items():
        template = template_from_table(f"Torch.{api}", frameworks.signatures())
        assert set(entry.sizes) | set(entry.least) <= set(template.symbols), api


DTYPES = ("float16", "bfloat16", "float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("regime", REGIMES)
def test_every_regime_has_values_of_the_dtype_in_any_shape(regime: str, dtype: str) -> None:
    for shape in ((), (0,), (1,), (3, 17)):
        values = floats(regime, dtype, shape, None, np.random.default_rng(1))
        assert values.shape == shape
        if regime not in ("nan", "inf"):
            assert np.isfinite(values.astype(numpy_dtype(dtype)).astype(np.float64)).all()


def test_subnormal_numbers_are_below_the_smallest_normal_one() -> None:
    values = floats("subnormal", "float32", (64,), None, np.random.default_rng(0)).astype(np.float32)
    assert np.all(values != 0)
    assert np.all(np.abs(values) < 2.0**-126)


def test_cancellation_leaves_little_of_large_numbers() -> None:
    values = floats("cancellation", "float32", (1000,), None, np.random.default_rng(0))
    assert abs(values.sum()) < 1e-2 * np.abs(values).sum()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("regime", ["near_overflow", "wide", "scaled"])
def test_products_and_sums_inside_do_not_overflow(regime: str, dtype: str) -> None:
    values = floats(regime, dtype, (512,), None, np.random.default_rng(2), limits=Limits(power=2))
    inside = float_format("float32" if dtype != "float64" else dtype)
    with np.errstate(over="ignore"):
        assert np.sum(values**2) < inside.max


def test_mixed_numbers_are_of_all_regimes() -> None:
    values = floats("mixed", "float32", (4, 400), None, np.random.default_rng(0))
    finite = values[np.isfinite(values)]
    assert np.isnan(values).any()
    assert np.isinf(values).any()
    assert np.any((finite != 0) & (np.abs(finite) < 2.0**-126))
    assert np.any(np.abs(finite) > 1e37)
    assert np.any((finite % 1 == 0.5) & (np.abs(finite) < 64))


def test_mixed_numbers_keep_to_the_limits() -> None:
    values = floats("mixed", "float32", (1000,), None, np.random.default_rng(0), limits=Limits(largest=1e6))
    assert np.max(np.abs(values[np.isfinite(values)])) <= 1e6 * (1 + 1e-12)
