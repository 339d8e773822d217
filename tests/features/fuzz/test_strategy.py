from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from pytest_probe import frameworks
from pytest_probe.features.fuzz.drawn import DrawnCall
from pytest_probe.features.fuzz.from_records import learnt
from pytest_probe.features.fuzz.strategy import calls
from pytest_probe.features.fuzz.templates import Template, template_from_table
from pytest_probe.model.dump import Call, TensorSpec, named_tensors

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
