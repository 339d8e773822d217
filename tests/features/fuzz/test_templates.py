from __future__ import annotations

import pytest

from pytest_probe import frameworks
from pytest_probe.features.fuzz.templates import Pattern, Sizes, TensorSlot, table, template_from_table, tensor_slot


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
