from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_probe.frameworks.torch.script import SCRIPT
from pytest_probe.model.run import Arguments, Leaf


def made(*args: object, path: str = "torch.cat", **kwargs: object) -> str:
    return SCRIPT.text("Torch.cat.0.forward", "x.py", path, Arguments(args, dict(kwargs), None), [])


def test_arguments_are_written_down() -> None:
    leaf = Leaf(np.ones(2))
    text = made([leaf, leaf], -1, out=None, limit=math.inf)
    call = "torch.cat([given['input.0.0'], given['input.0.1']], -1, out=None, limit=float(\"inf\"))"
    assert call in text
    compile(text, "x.py", "exec")


@pytest.mark.parametrize("name", ['a"""\nimport os', "x'); import os; ('"])
def test_a_dump_writes_no_code(name: str) -> None:
    leaf = Leaf(np.ones(2))
    for text in (SCRIPT.text(name, name, "torch.cat", Arguments((leaf,), {name: 1}, None), []), made({name: leaf})):
        compile(text, "x.py", "exec")
        assert "import os\n" not in text
        assert "; import os" not in text.replace(repr(name), "").replace(repr(f"input.0.{name}"), "")


def test_what_has_no_literal_shows_both_sides_as_saved() -> None:
    assert 'name.startswith("actual.")' in made(object())
    assert 'name.startswith("actual.")' in made(Leaf(np.ones(2)), path="my_kernels.cat")
