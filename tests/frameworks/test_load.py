from __future__ import annotations

import pytest

from pytest_probe import frameworks
from pytest_probe.errors import Unsupported


def test_another_framework() -> None:
    with pytest.raises(Unsupported, match="a dump of jax") as caught:
        frameworks.load("jax")
    assert caught.value.kind == "another framework"


@pytest.mark.parametrize(
    ("names", "imported"),
    [(("pytorch", "paddle"), []), (("mindspore",), []), (("pytorch", "mindspore", "paddle"), ["mindspore"])],
)
def test_mindspore_comes_before_paddle(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], imported: list[str]
) -> None:
    found: list[str] = []
    monkeypatch.setattr(frameworks, "check_installed", found.append)
    frameworks.import_in_order(names)
    assert found == imported
