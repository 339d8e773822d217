"""Paddle's own kernels break no relation; planted ones do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.device.conftest import ROOT
from tests.support.installed import needs_paddle
from tests.support.paddle_dumps import entry, tensor, write
from tests.support.running import rows

pytestmark = [needs_paddle, pytest.mark.paddle]
PLANTED = """
import paddle

def leaves_its_tail(x, name=None):
    out = paddle.empty_like(x)
    out[:-1] = paddle.nn.functional.relu(x)[:-1]
    return out

class Cached:
    known = {}

    def __call__(self, x, axis=-1, dtype=None, name=None):
        key = x.data_ptr(), tuple(x.shape)
        if key not in self.known:
            self.known[key] = paddle.nn.functional.softmax(x, axis)
        return self.known[key].clone()

def reads_after_writing(x, y, name=None):
    own = x.detach()
    own.multiply_(paddle.to_tensor(2.0))
    out = x * 0.5 + y
    own.multiply_(paddle.to_tensor(0.5))
    return out

CALLS = {
    "all-written": ("relu", leaves_its_tail), "again": ("softmax", Cached()), "alias": ("add", reads_after_writing),
}

def pytest_probe_register(registry):
    api, call = CALLS[NAME]
    registry.calls["paddle." + api if api == "add" else "paddle.nn.functional." + api] = call
"""


def run(pytester: pytest.Pytester, *options: str) -> list[dict[str, Any]]:
    """The outputs of all results that are relations."""
    pytester.runpytest_subprocess(*options, "--probe-relations=all", "--probe-out=out")
    return [output for row in rows() for output in row["outputs"] if output["name"].startswith("relation.")]


@pytest.mark.parametrize("options", [[], ["--probe-dtype=bfloat16", "--probe-emulate"]], ids=["recorded", "bfloat16"])
def test_paddle_is_healthy(pytester: pytest.Pytester, options: list[str]) -> None:
    found = run(pytester, f"--probe-dump={ROOT / 'cases/paddle-gpt'}", *options)
    assert [output for output in found if output["verdict"] == "error"] == []
    held = [output["name"] for output in found if output["verdict"] == "pass"]
    assert min(held.count(f"relation.{name}") for name in ("all-written", "guard", "again")) > 80


@pytest.mark.parametrize("name", ["all-written", "again", "alias"])
def test_a_fault_in_paddle_breaks_its_relation_alone(pytester: pytest.Pytester, name: str) -> None:
    api = {"all-written": "nn.functional.relu", "again": "nn.functional.softmax", "alias": "add"}[name]
    x = tensor(shape=(6, 96))
    dump = write(pytester.path, {f"paddle.{api}*0": entry(*[x] * (1 + (name == "alias")))})
    pytester.makeconftest(f"NAME = {name!r}\n{PLANTED}")
    found = run(pytester, f"--probe-dump={dump}")
    broken = [output["name"] for output in found if output["verdict"] in ("warning", "error")]
    assert broken == [f"relation.{name}"], found
