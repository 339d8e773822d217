"""What users registered is identified by its code, by what is bound to it, and by its fields."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import pytest

from pytest_probe.frameworks.mapping import Mapping
from pytest_probe.plugin.identity import added, of_entries
from pytest_probe.registry import Registry


def scaled(factor: float, inner: Callable[[float], float] = abs) -> Callable[[float], float]:
    def reference(value: float) -> float:
        return inner(value) * factor

    return reference


def with_default(value: float, factor: float = 1.0) -> float:
    return value * factor


def calls_itself() -> Callable[[int], int]:
    def reference(value: int) -> int:
        return reference(value - 1) if value else 0

    return reference


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (scaled(1.0), scaled(1.01)),
        (scaled(1.0, scaled(1.0)), scaled(1.0, scaled(1.01))),
        (scaled(1.0), with_default),
        (functools.partial(with_default, factor=1.0), functools.partial(with_default, factor=1.01)),
        (functools.partial(scaled(1.0)), functools.partial(scaled(1.01))),
    ],
    ids=["closure", "closure of a closure", "source", "partial", "closure in a partial"],
)
def test_another_function_of_one_name_is_another(before: Any, now: Any) -> None:
    assert of_entries({"kernel": before}) != of_entries({"kernel": now})


@pytest.mark.parametrize(
    "make",
    [lambda: scaled(2.0, abs), calls_itself, lambda: functools.partial(with_default, factor=2.0), lambda: object()],
    ids=["closure", "recursive", "partial", "object"],
)
def test_the_same_made_again_is_the_same(make: Callable[[], Any]) -> None:
    assert of_entries({"kernel": make()}) == of_entries({"kernel": make()})


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (Mapping("torch.sum(input/x)"), Mapping("torch.sum(input/x dim/axis=None)")),
        (Mapping("torch.sum(input/x)", scaled(1.0)), Mapping("torch.sum(input/x)", scaled(1.01))),
        ({"batch": {"x": 0}}, {"batch": {"x": 1}}),
        ("torch_npu", "torch_npu.other"),
    ],
    ids=["mapping", "function of a mapping", "relation", "namespace"],
)
def test_an_entry_with_other_fields_is_another(before: Any, now: Any) -> None:
    assert of_entries({"name": before}) != of_entries({"name": now})
    assert of_entries({"name": before}) == of_entries({"name": before})


def test_what_a_project_adds_to_any_family_is_known() -> None:
    registry, known = Registry.default(), Registry.default()
    families = [name for name in registry.__struct_fields__ if name != "readers"]
    assert [added(registry, known, name) for name in families] == [{}] * len(families)
    for name in families:
        getattr(registry, name)["own"] = scaled(1.0)
    assert all(list(added(registry, known, name)) == ["own"] for name in families)
    registry.standards["noise"] = cast(Any, scaled(1.0))
    assert list(added(registry, known, "standards")) == ["noise", "own"]
