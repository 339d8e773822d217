from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from pytest_probe import frameworks
from pytest_probe.errors import Unsupported

if TYPE_CHECKING:
    # A file of functions is no class that says what it is: mypy compares them here.
    from pytest_probe.capture.framework import Recording
    from pytest_probe.capture.mindspore import recording as of_mindspore
    from pytest_probe.capture.paddle import recording as of_paddle
    from pytest_probe.capture.torch import recording as of_torch

    RECORDINGS: tuple[Recording, ...] = (of_torch, of_paddle, of_mindspore)


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


def test_what_judges_its_calls_must_be_installed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda module: None if module == "torch" else ModuleSpec(module, None)
    )
    wanted = "its calls need torch, which is not installed: pip install 'pytest-probe[torch]'"
    for name in ("mindspore", "pytorch"):
        assert (frameworks.unavailable(name), frameworks.unavailable(name, stored=True)) == (wanted, wanted)
    assert frameworks.unavailable("paddle") == ""
    monkeypatch.setitem(sys.modules, "mindspore", SimpleNamespace(__version__="2.10.0"))
    with pytest.raises(Unsupported, match=r"^torch is not installed: pip install 'pytest-probe\[torch\]'$"):
        frameworks.load("mindspore")
