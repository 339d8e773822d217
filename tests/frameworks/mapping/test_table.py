from __future__ import annotations

import ast
import builtins
import functools
import importlib
from pathlib import Path

import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.mapping import Mapping
from pytest_probe.frameworks.mapping.table import Table, entries_of, packaged

ENTRIES = {
    "paddle.add": Mapping("torch.add(input/x other/y)"),
    "paddle.Tensor.__add__": Mapping("torch.add(input/x other/y)", one_way=True),
    "paddle.nn.functional.relu": Mapping("torch.relu(input/x)"),
    "paddle.own": Mapping("own(x)", function=len),
}
TABLE = Table(
    "paddle", "torch", ENTRIES, {"paddle.Tensor": ("paddle", "paddle.nn.functional"), "torch.Tensor": ("torch",)}
)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("paddle.add", "paddle.add"),
        ("paddle.Tensor.add", "paddle.add"),
        ("paddle.Tensor.add_", "paddle.add"),
        ("paddle.add_", "paddle.add"),
        ("paddle.Tensor.relu", "paddle.nn.functional.relu"),
        ("paddle.Tensor.__add__", "paddle.Tensor.__add__"),
    ],
)
def test_an_api_has_the_entry_of_a_name_that_means_the_same(path: str, name: str) -> None:
    found = TABLE.found(path)
    assert found == (name, ENTRIES[name])


def test_other_names_have_none() -> None:
    assert TABLE.found("paddle.linalg.add") is None
    assert TABLE.found_back("paddle.add") is None


def test_backwards_the_first_entry_counts_that_is_not_one_way() -> None:
    assert TABLE.found_back("torch.Tensor.add") == ("paddle.add", ENTRIES["paddle.add"])
    assert TABLE.found_back("own") is None


def test_entries_of_a_user_come_first() -> None:
    own = Mapping("torch.sub(input/x other/y)")
    assert TABLE.with_entries({"paddle.add": own}).found("paddle.add") == ("paddle.add", own)


def written(folder: Path, text: str) -> Path:
    file = folder / "own.yaml"
    file.write_text(text)
    return file


def test_a_file_has_calls_or_more(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "paddle.abs: torch.abs(input/x)\n"
        "paddle.gelu:\n"
        "  call: torch.gelu(input/x approximate=False)\n"
        "  values: {approximate: {False: none, True: tanh}}\n"
        "  only: {eps: 1e-05}\n"
        "  outputs: '[0, 1]'\n"
        "  one_way: true\n",
    )
    found = entries_of(file)
    assert found["paddle.abs"] == Mapping("torch.abs(input/x)")
    assert found["paddle.gelu"] == Mapping(
        "torch.gelu(input/x approximate=False)",
        values={"approximate": {False: "none", True: "tanh"}},
        only={"eps": 1e-05},
        outputs=[0, 1],  # type: ignore[arg-type]
        one_way=True,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a.b:\n  call: c.d(x)\n  vlaues: {}\n", r"own.yaml:3: a.b: unknown key 'vlaues'; did you mean 'values'"),
        ("a.b: c.d\n", r"own.yaml:1: a.b: call: 'c.d' cannot be used; 'c.d' is no call"),
        ("a.b:\n  call: d(x)\n", r"own.yaml:2: a.b: call: 'd\(x\)' cannot be used; it names no API with its module"),
        ("a.b:\n  call: d.e(x)\n  result: x\n", r"own.yaml:2: .*; only pytest-probe's own maps have a result"),
        ("a.b:\n  back: x\n", r"own.yaml:1: a.b: call: None cannot be used; give a call"),
    ],
)
def test_what_is_wrong_is_said_with_file_line_and_key(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        entries_of(written(tmp_path, text))


@pytest.mark.parametrize("pair", ["paddle_torch", "mindspore_torch"])
def test_functions_and_results_name_what_is_there(pair: str) -> None:
    for api, entry in packaged(pair).entries.items():
        if isinstance(entry.function, functools.partial):
            module, text = entry.function.args
            known = {*vars(importlib.import_module(module)), *vars(builtins)}
            if not text.isidentifier():
                known |= {*entry.takes.parameters, entry.takes.rest}
            named = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
            assert named <= known, api
