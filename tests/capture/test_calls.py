"""What each framework's capture promises of calls."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe import PrecisionDebugger, capture, seed_all
from pytest_probe.errors import OverflowFound, SettingsError
from tests.support.capturing import content, entries, forwards


def test_inputs_are_those_before_the_call(kit: Any, tmp_path: Path) -> None:
    x = kit.P.full([3], 2.0)
    (entry,) = kit.recorded(tmp_path, lambda: x.add_(x)).values()
    assert [entry["input_args"][0]["Max"], entry["output"][0]["Max"]] == [2.0, 4.0]
    assert content(tmp_path)["framework"] == kit.FRAMEWORK


@pytest.mark.parametrize("size", [64, 90_000])
def test_memory_that_is_used_again_is_another_tensor(kit: Any, size: int, tmp_path: Path) -> None:
    def program() -> None:
        for value in range(50):
            kit.P.sign(kit.P.full([size], float(value)))

    found = kit.recorded(tmp_path, program)
    given = [found[f"{kit.TOP}.sign.{number}.forward"]["input_args"][0]["Max"] for number in range(50)]
    assert given == list(range(50))


def test_lists_scopes_and_halves(kit: Any, tmp_path: Path) -> None:
    of = kit.TOP

    def calls(**options: Any) -> list[str]:
        def program() -> None:
            kit.P.tanh(kit.P.exp(kit.wanting(kit.P.ones([2])))).sum().backward()

        found.update(kit.recorded(tmp_path, program, overwrite=True, **options))
        return list(found)

    found = dict[str, Any]()
    exp = [f"{of}.exp.0.forward", f"{of}.exp.0.backward"]
    assert calls(white_list=["exp"]) == exp
    found.clear()
    assert not [name for name in calls(black_list=["exp"]) if "exp" in name]
    assert f"{of}.tanh.0.forward" in found
    found.clear()
    assert calls(scope=exp[:1] * 2) == exp
    assert found[exp[1]].keys() >= {"input", "probe"}
    found.clear()
    assert calls(list=["exp"], data_mode=["forward", "output"]) == exp[:1]
    assert found[exp[0]].keys() == {"output", "is_recompute"}
    found.clear()
    assert calls(list=["exp"], data_mode=["backward", "input"]) == exp[1:]
    assert found[exp[1]].keys() == {"input", "probe"}


def test_an_overflow_ends_the_program_behind_its_call(kit: Any, tmp_path: Path) -> None:
    with pytest.raises(OverflowFound, match=rf"{kit.TOP}\.log\.0\.forward"):
        kit.recorded(tmp_path, lambda: kit.P.log(kit.P.zeros([2])), task="overflow_check")
    assert forwards(entries(tmp_path)) == [f"{kit.TOP}.log.0"]
    x = kit.wanting(kit.P.zeros([2]))
    first = {"pytorch": "sqrt", "paddle": "__mul__"}[kit.FRAMEWORK]  # Paddle's has the gradient of its input alone
    with pytest.raises(OverflowFound, match=rf"{first}\.0\.backward"):
        kit.recorded(tmp_path / "backward", lambda: kit.P.sqrt(x * 1.0).sum().backward(), task="overflow_check")
    # Paddle's ends behind its backward.
    assert kit.FRAMEWORK == "pytorch" or np.isinf(x.grad.numpy()).all()


SOURCE = """
import warnings

def double(x):
    return x * 2.0

def warns():
    warnings.warn("old", stacklevel=2)

def warns_inside():
    warns()

def raises():
    raise KeyError
"""


def test_functions_of_other_modules_warn_and_raise_as_without(
    kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = type(sys)("fused_of_ours")
    exec(SOURCE, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with capture(tmp_path, framework=kit.FRAMEWORK, namespaces={"Fused": module.__name__}):
        module.double(kit.P.ones([2]))
        with pytest.warns(UserWarning, match="old") as seen:
            module.warns()
        with pytest.warns(UserWarning, match="old") as inside:
            module.warns_inside()
        with pytest.raises(KeyError) as raised:
            module.raises()
    assert forwards(entries(tmp_path))[:2] == [f"{kit.TOP}.ones.0", "Fused.double.0"]
    assert seen[0].filename == __file__
    assert kit.FRAMEWORK == "pytorch" or inside[0].filename == "<string>"
    if sys.version_info >= (3, 11):
        assert [str(each.path) for each in raised.traceback] == [__file__, "<string>"]


def test_a_framework_that_is_not_recorded_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="pytorch, paddle, mindspore"):
        PrecisionDebugger(dump_path=tmp_path, framework="jax")


@pytest.fixture
def drawn(kit: Any) -> Iterator[Callable[[], list[Any]]]:
    """What each generator draws; they are put back."""

    def draw() -> list[Any]:
        dropped = kit.F.dropout(kit.P.ones([32]))
        return [random.random(), np.random.rand(2).tolist(), kit.P.rand([3]).tolist(), dropped.tolist()]

    states = random.getstate(), np.random.get_state(), kit.P.get_rng_state()
    yield draw
    random.setstate(states[0])
    np.random.set_state(states[1])
    kit.P.set_rng_state(states[2])


def test_one_seed_for_everything_that_draws(kit: Any, drawn: Callable[[], list[Any]], tmp_path: Path) -> None:
    seed_all(1234, framework=kit.FRAMEWORK)
    first, other = drawn(), drawn()
    assert all(one != another for one, another in zip(first, other, strict=True))
    seed_all(8, framework=kit.FRAMEWORK)
    assert all(one != another for one, another in zip(first, drawn(), strict=True))
    seed_all(1234, framework=kit.FRAMEWORK)
    PrecisionDebugger(dump_path=tmp_path / "a", framework=kit.FRAMEWORK, is_deterministic=False)
    assert drawn() == first
    PrecisionDebugger(dump_path=tmp_path / "b", framework=kit.FRAMEWORK)
    assert drawn() != first
    PrecisionDebugger(dump_path=tmp_path / "c", framework=kit.FRAMEWORK, seed=1234)
    assert drawn() == first
