"""The module that made a call, from construct.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.records.msprobe.construct import ConstructFile, module_path


def module(folder: Path, content: Any, entry: str = "Functional.relu.0.forward") -> str:
    path = folder / "construct.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    found = ConstructFile(path)(entry)
    return module_path(found[0]) if found else ""


@pytest.mark.parametrize(
    ("parent", "path"),
    [
        ("Module.layers.0.attention.Attention.forward.3", "layers.0.attention"),
        ("Module.Model.forward.0", "Model"),
        ("Module.forward.Net.backward.0", "forward"),
        (["Module.layers.0.Block.forward.0", 2], "layers.0"),  # Megatron's
        ("optimizer", "optimizer"),
        (None, ""),
        (7, ""),
        ([], ""),
        ("Module.a\nb.Net.forward.0", "a\\nb"),
    ],
)
def test_the_path_of_a_module(tmp_path: Path, parent: object, path: str) -> None:
    assert module(tmp_path, {"Functional.relu.0.forward": parent}) == path


def test_a_backward_has_the_module_of_its_forward(tmp_path: Path) -> None:
    content = {"Functional.relu.0.forward": "Module.a.Net.forward.0"}
    assert module(tmp_path, content, "Functional.relu.0.backward") == "a"
    content["Functional.relu.0.backward"] = "Module.b.Net.backward.0"
    assert module(tmp_path, content, "Functional.relu.0.backward") == "b"


@pytest.mark.parametrize("content", ["", "{", "[]", "[1]", "null", '"x"'])
def test_a_file_that_is_none_gives_nothing(tmp_path: Path, content: str) -> None:
    assert module(tmp_path, content) == ""


def test_no_file(tmp_path: Path) -> None:
    assert ConstructFile(tmp_path / "construct.json")("Functional.relu.0.forward") == ()
