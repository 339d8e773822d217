"""Small dumps for runs of pytest inside pytest.

In-process runs forget the modules that they imported; what is slow to import, or compared by identity, is imported
here once.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeAlias

import hypothesis.strategies  # noqa: F401
import pytest
import torch._decomp
import torch._dynamo.repro.after_dynamo
import torch._inductor.compile_fx
import torch._refs  # noqa: F401

import pytest_probe.cli
import pytest_probe.frameworks.torch.framework
import pytest_probe.plugin.reporting
import pytest_probe.plugin.xdist  # noqa: F401
from pytest_probe import frameworks
from tests.support.other_plugins import Ran
from tests.support.running import ran

if not frameworks.unavailable("paddle"):  # it cannot be imported a second time in one process
    import_module("pytest_probe.frameworks.paddle.framework")

Entries: TypeAlias = "Mapping[str, Any]"
DumpMaker: TypeAlias = "Callable[..., Path]"
Probed: TypeAlias = "Callable[..., Ran]"

USER_SCRIPT = "/home/user/train.py"


def tensor(*shape: int, dtype: str = "float32", requires_grad: bool = True) -> dict[str, Any]:
    """A tensor entry as msprobe writes it, with values between -1 and 1."""
    return {
        "type": "torch.Tensor",
        "dtype": f"torch.{dtype}",
        "shape": list(shape),
        "Max": 1.0,
        "Min": -1.0,
        "Mean": 0.0,
        "Norm": 1.0,
        "requires_grad": requires_grad,
    }


def forward(*args: Any, output: Any) -> dict[str, Any]:
    return {"input_args": list(args), "input_kwargs": {}, "output": [output]}


def backward(gradient: Any, *gradients: Any) -> dict[str, Any]:
    return {"input": [gradient], "output": list(gradients)}


def entries() -> dict[str, Any]:
    """relu and linear with their backward, argmax without, one API outside the allow-list, one Module entry."""
    x, weight, y = tensor(2, 3), tensor(4, 3), tensor(2, 4)
    index = {**tensor(2, dtype="int64", requires_grad=False), "Max": 2, "Min": 0, "Mean": None, "Norm": None}
    shared = {
        "Module.net.Net.forward.0": forward(x, output=y),
        "Functional.relu.0.forward": forward(x, output=x),
        "Functional.linear.0.forward": forward(x, weight, output=y),
        "Torch.argmax.0.forward": forward(x, {"type": "int", "value": 1}, output=index),
        "Torch.load.0.forward": forward({"type": "str", "value": "x.pt"}, output=x),
        "Functional.linear.0.backward": backward(y, x, weight),
        "Functional.relu.0.backward": backward(x, x),
    }
    return json.loads(json.dumps(shared))


NAMES = [
    "Functional.relu.0.forward",
    "Functional.relu.0.backward",
    "Functional.linear.0.forward",
    "Functional.linear.0.backward",
    "Torch.argmax.0.forward",
    "Torch.load.0.forward",
]

# relu fails in both directions, linear's forward is warned about; argmax and the rest stay as they are.
PLANTED = """
    from msgspec.structs import replace

    from pytest_probe.model.verdict import ArgumentRow, Element, OutputVerdict

    METRICS = {"max_ulp": 4096.0, "max_abs": 0.5, "noise_ratio": 512.0, "noise_ratio_limit": 64.0}
    WORST = (Element((1, 2), 0.75, 0.25, 4096.0, 512.0),)

    def planted(outcome, reason):
        return OutputVerdict("output.0", (2, 3), "float32", outcome, "noise", reason, METRICS, WORST)

    def pytest_probe_verdict(case, verdict):
        tensor = ArgumentRow("input.0", (2, 3), "float32", "-1 .. 1")
        arguments = (tensor, ArgumentRow("inplace", None, "bool", "False"))
        if case.record.api == "relu":
            output = planted("error", "noise ratio 512 (limit 64)")
            return replace(verdict, verdict="error", reason="", outputs=(output,), arguments=arguments)
        if case.record.api == "linear" and case.direction == "forward":
            return replace(verdict, verdict="warning", outputs=(planted("warning", "max ULP 4096"),))
"""


@pytest.fixture
def make_dump(pytester: pytest.Pytester) -> DumpMaker:
    """Writes a dump with a stack.json; gives its path."""

    def make(path: str = "dump.json", data: Entries | None = None, **header: Any) -> Path:
        return written(pytester.path / path, data, **header)

    return make


def written(file: Path, data: Entries | None = None, **header: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, **header}
    file.write_text(json.dumps({**content, "data": entries() if data is None else data}), encoding="utf-8")
    frame = f"File {USER_SCRIPT}, line 12, in step, \n y = F.relu(x)"
    stack = {"Functional.relu.0.forward": [frame]}
    file.with_name("stack.json").write_text(json.dumps(stack), encoding="utf-8")
    return file


@pytest.fixture
def probed(pytester: pytest.Pytester, make_dump: DumpMaker) -> Probed:
    """Runs pytest on dump.json with these entries, under this conftest; what it writes lies in out/."""

    def run(*args: str, data: Entries | None = None, conftest: str = "") -> Ran:
        make_dump(data=data)
        if conftest:
            pytester.makeconftest(conftest)
        shutil.rmtree("out", ignore_errors=True)
        return Ran(pytester.runpytest("--probe-dump=dump.json", "--probe-out=out", *args), pytester.path)

    return run


@pytest.fixture
def planted(pytester: pytest.Pytester) -> None:
    """A conftest that makes relu fail and linear's forward imprecise."""
    pytester.makeconftest(PLANTED)


# What is written and shown of a run that several tests look at.
SHOWN = (
    "--probe-dump=dump.json", "--probe-device=cpu", "--probe-seed=3", "-p", "no:cacheprovider",
    "--probe-out=out", "--junitxml=junit.xml",
)  # fmt: skip


@pytest.fixture(scope="session")
def healthy_run(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run of the dump, in which all passes."""
    folder = tmp_path_factory.mktemp("healthy")
    written(folder / "dump.json")
    return ran(folder, *SHOWN, "-vv", "-rs", "--durations=1", "--durations-min=0")


@pytest.fixture(scope="session")
def planted_run(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run in which relu fails and linear's forward is imprecise."""
    folder = tmp_path_factory.mktemp("planted")
    written(folder / "dump.json")
    (folder / "conftest.py").write_text(dedent(PLANTED))
    return ran(folder, *SHOWN)
