from __future__ import annotations

from pytest_probe import frameworks
from pytest_probe.features.fuzz.from_table import tabled
from pytest_probe.features.fuzz.table import TensorText, table


def test_the_table_has_at_least_sixty_operators() -> None:
    assert len(table()) >= 60


def test_words_of_a_tensor() -> None:
    assert TensorText.parsed("int64 *b") == TensorText("*b", "int64", False, False)
    assert TensorText.parsed("list *s") == TensorText("*s", "", True, False)
    assert TensorText.parsed("g*c ?") == TensorText("g*c", "", False, True)


def test_every_operator_of_the_table_is_one_of_the_framework() -> None:
    signatures = frameworks.signatures()
    known = {signatures.canonical(api) for api in frameworks.load().apis()}
    assert set(table()) <= known


def test_symbols_of_an_entry_are_those_of_its_tensors() -> None:
    for api, entry in table().items():
        template = tabled(f"Torch.{api}", frameworks.signatures())
        assert set(entry.sizes) | set(entry.least) <= set(template.symbols), api
