from __future__ import annotations

import _operator
import copy
import math
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pytest_probe import PrecisionDebugger, capture
from pytest_probe.errors import SettingsError
from tests.support.capturing import entries, recorded

SOURCE = """
import math
from math import sin
import torch
from torch import cos

class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

double = Doubling.apply

def swish(x, *, beta=1.0):
    return helper(x, beta) * x

def helper(x, beta):
    return torch.sigmoid(x * beta)

def fails(name, function, original):
    raise KeyError("its own")

def _private(x):
    return x + 1
"""


@pytest.fixture
def ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "probe_ops.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import probe_ops  # type: ignore[import-not-found]

    yield probe_ops
    sys.modules.pop("probe_ops")


def test_calls_are_recorded_outermost_only(tmp_path: Path, ops: Any) -> None:
    x = torch.linspace(-1, 1, 5, requires_grad=True)
    got: list[torch.Tensor] = []

    def program() -> None:
        got.append(ops.swish(x, beta=2.0))
        got[0].sum().backward()
        ops.helper(x, 1.0)

    found = recorded(tmp_path / "dump", program, namespaces={"Mine": "probe_ops"})
    assert list(found) == [
        "Mine.swish.0.forward",
        "Tensor.sum.0.forward",
        "Tensor.sum.0.backward",
        "Mine.swish.0.backward",
        "Mine.helper.0.forward",
    ]
    entry = found["Mine.swish.0.forward"]
    assert entry["input_kwargs"] == {"beta": {"type": "float", "value": 2.0}}
    assert entry["output"][0]["Max"] == got[0].max().item()
    (gradient,) = found["Mine.swish.0.backward"]["output"]
    assert x.grad is not None
    assert gradient["Norm"] == pytest.approx(x.grad.norm().item(), rel=1e-6)


def test_what_a_module_took_from_others_is_left_to_them(tmp_path: Path, ops: Any) -> None:
    taken = {name: getattr(ops, name) for name in ("sin", "cos", "_private", "Doubling", "math")}
    with capture(tmp_path / "dump", namespaces={"Mine": "probe_ops"}):
        assert {name: getattr(ops, name) for name in taken} == taken
        ops.cos(torch.ones(2))
        ops.double(torch.ones(2, requires_grad=True))
    assert [name for name in entries(tmp_path / "dump") if not name.startswith("Torch.ones")] == [
        "Torch.cos.0.forward",
        "Mine.double.0.forward",
    ]


def test_functions_are_restored(tmp_path: Path, ops: Any) -> None:
    swish, helper = ops.swish, ops.helper
    debugger = PrecisionDebugger(dump_path=tmp_path / "dump", namespaces={"Mine": "probe_ops"})
    debugger.start()
    assert ops.swish is not swish
    assert ops.swish == swish
    assert ops.swish.__name__ == "swish"
    kept = ops.swish
    assert pickle.loads(pickle.dumps(kept)) is kept
    assert copy.deepcopy(kept) == swish
    ops.helper = math.tan
    debugger.close()
    assert ops.swish is swish
    # Replaced by the program meanwhile: its own choice stays.
    assert ops.helper is math.tan
    ops.helper = helper
    assert torch.equal(kept(torch.ones(2)), swish(torch.ones(2)))


def test_an_exception_passes(tmp_path: Path, ops: Any) -> None:
    def program() -> None:
        with pytest.raises(KeyError, match="its own"):
            ops.fails(name=1, function=2, original=3)
        torch.ones(2).sin()

    assert "Tensor.sin.0.forward" in recorded(tmp_path / "dump", program, namespaces={"Mine": "probe_ops"})


def test_extension_functions_stand_in_modules(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return _operator.neg(x)

    model = nn.Sequential(Net())
    found = recorded(tmp_path, lambda: model(torch.ones(2)), namespaces={"Ext": "_operator"}, level="mix", model=model)
    assert found["Ext.neg.0.forward"]["probe"] == {"module": "0"}
    assert found["Ext.neg.0.forward"]["output"][0]["Max"] == -1
    assert "Tensor.__neg__.0.forward" not in found


@pytest.mark.parametrize(
    ("namespaces", "message"),
    [
        ({"Mine": "no.such.module"}, r"namespaces: Mine: 'no.such.module' .* No module named"),
        ({"Functional": "math"}, r"namespaces: 'Functional' .* a prefix of one word, but not one of .*Functional"),
        ({"My.Ops": "math"}, r"namespaces: 'My.Ops'"),
    ],
)
def test_namespaces_that_cannot_be_used(tmp_path: Path, namespaces: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        PrecisionDebugger(dump_path=tmp_path, namespaces=namespaces)
