from __future__ import annotations

import contextlib
import gc
import itertools
import json
import math
import re
import sys
import tracemalloc
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.utils.checkpoint

from pytest_probe import PrecisionDebugger, capture
from pytest_probe.capture.snapshot import Seen
from tests.support.capturing import recorded


def files(folder: Path) -> dict[str, bytes]:
    """Addresses are each run's own, since memory is used again."""
    (step,) = folder.glob("step0/*")
    found = {str(path.relative_to(step)): path.read_bytes() for path in sorted(step.rglob("*")) if path.is_file()}
    return {**found, "dump.json": re.sub(rb'"address":\d+', b'"address":0', found["dump.json"])}


class Exact(torch.nn.Module):
    """Makes calls of every kind, on whole numbers: their sums are right in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4) - 5)
        self.kept: list[Any] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.linear(x, self.weight).relu() + 1
        parts = torch.split(y, [1, 2], dim=1)
        top = y.max(dim=1)
        z = torch.cat([*parts, top.values.unsqueeze(1)], 1)
        self.kept += [y, parts, top, z, z.transpose(0, 1), z[:, ::2], z[..., 1:3, None], z.T.contiguous(), z.view(-1)]
        self.kept += [
            torch.nn.functional.pad(z, (1, 0), value=2.0) > 0,
            z.sum(0, keepdim=True),
            torch.where(z > 2, z, 0.0),
        ]
        return z

    def step(self) -> None:
        x = torch.arange(20.0).reshape(5, 4).requires_grad_()
        with contextlib.suppress(RuntimeError):
            x @ torch.ones(3)
        z = self(x)
        again = torch.utils.checkpoint.checkpoint(lambda t: (t * 2).relu(), z, use_reentrant=False)
        with torch.no_grad():
            counts = torch.arange(70).to(torch.int32, copy=True)
            large = torch.arange(6000, dtype=torch.float32).remainder(7).sub_(3)
            self.kept += [
                counts,
                counts + 1,
                large,
                large.double(),
                large != 0,
                torch.zeros(3, device="cpu"),
                z.clone(),
            ]
            self.kept[-1].mul_(2).add_(z, alpha=3)
            self.kept[-1].add_(1)
            self.kept += [torch.empty(0), torch.full((2,), math.nan), torch.tensor([1, 2, 3]), z.detach(), z.tolist()]
        with torch.autocast("cpu", torch.bfloat16):
            self.kept += [torch.nn.functional.linear(x, self.weight), torch.dropout(z, 0.5, True)]
        with torch.inference_mode():
            self.kept.append(torch.ones(3) + 1)
        several = (x * x, torch.stack((x, x)), torch.cat([x] * 20), x.split(2)[1], torch.addmm(z, z, again.T @ z))
        torch.autograd.backward([again.square().sum(), *(one.sum() for one in several)])
        self.kept += [again, x.grad, -x, x // 2, torch.stack((x, x)), x.numpy(force=True)]


OPTIONS: dict[str, dict[str, Any]] = {
    "statistics": {},
    "structure": {"task": "structure"},
    "md5": {"summary_mode": "md5"},
    "tensor": {"task": "tensor"},
    "modules": {"level": "mix"},
    "forward inputs": {"data_mode": ["forward", "input"]},
    "backward": {"data_mode": ["backward"]},
    "without stacks": {"extra_info": False},
    "no numbers": {"kinds": ["float"]},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_files_are_the_same_bytes_with_and_without_the_kernel(name: str, compiled: ModuleType, tmp_path: Path) -> None:
    def written(kernel: ModuleType | None) -> dict[str, bytes]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pytest_probe.capture.kernel.compiled", kernel)
            torch.manual_seed(0)
            model = Exact()
            debugger = PrecisionDebugger(dump_path=tmp_path, overwrite=True, **OPTIONS[name])
            debugger.start(model)
            model.step()
            debugger.close()
        return files(tmp_path)

    # torch imports what it needs at the first call, and some releases call functions of their own then.
    Exact().step()
    plain, quick = (written(kernel) for kernel in (None, compiled))
    assert len(plain) >= 3
    assert quick == plain


def small_step(x: torch.Tensor) -> None:
    """Calls that the kernel records alone, calls that it leaves to Python, and calls that raise."""
    y = torch.nn.functional.linear(x, x, None) + x.mul(2)
    torch.cat([y, y.T, torch.zeros(4, 4, device="cpu")]).sum().backward()
    y.detach()[:, ::2].contiguous().max(dim=1)
    torch.nn.functional.layer_norm(y, (4,), eps=1e-6).data_ptr()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.dropout(y, 0.5, True).add_(1)
    with contextlib.suppress(RuntimeError):
        y @ torch.ones(3)
    with contextlib.suppress(TypeError):
        torch.relu(y, no_such_argument=1)  # type: ignore[call-arg]


def test_common_calls_go_through_none_of_pythons_ways(
    compiled: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a common call")

    monkeypatch.setattr("pytest_probe.capture.kernel.compiled", compiled)
    for way in ("values.Values.tensor", "values.Values._new", "values.Values._count", "hooks.TorchHooks.call"):
        monkeypatch.setattr(f"pytest_probe.capture.torch.{way}", fail)
    x = torch.randn(4, 4, requires_grad=True)

    def program() -> None:
        for _ in range(2):
            y = torch.nn.functional.linear(x, x, None).add_(1)
        torch.cat([y, torch.relu(y.T)]).backward(torch.ones(8, 4))
        torch.arange(8000.0).neg()

    found = recorded(tmp_path, program)
    assert len(found) > 10
    assert not [name for name, entry in found.items() if "failed" in json.dumps(entry)]


def test_a_kept_capture_holds_no_more_after_many_calls(
    compiled: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_probe.capture.kernel.compiled", compiled)
    x = torch.randn(4, 4, requires_grad=True)
    debugger = PrecisionDebugger(dump_path=tmp_path)
    watched = [x, x.dtype, x.layout, torch.Tensor, Seen, debugger, debugger._hooks, debugger.recorder]

    def held() -> tuple[list[int], int]:
        for _ in range(10):
            debugger.start()
            for _ in range(10):
                small_step(x)
            debugger.step()
        debugger.stop()
        gc.collect()
        return [sys.getrefcount(one) for one in watched], tracemalloc.get_traced_memory()[0]

    held()
    tracemalloc.start()
    try:
        found = [held() for _ in range(5)]
    finally:
        tracemalloc.stop()
        debugger.close()
    assert found[-1][0] == found[-2][0]
    # One object for each call would be 70,000 bytes each time.
    assert min(later[1] - earlier[1] for earlier, later in itertools.pairwise(found)) < 20_000


class Planted(Exception):
    """What a planted function raises."""


@pytest.mark.parametrize("owner", ["values.Values", "hooks.TorchHooks"])
def test_what_the_kernel_calls_may_raise(
    owner: str, compiled: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_probe.capture.kernel.compiled", compiled)
    path = f"pytest_probe.capture.torch.{owner}._needs"
    needs = resolve_name(path)
    called: list[str] = []
    x = torch.randn(4, 4, requires_grad=True)

    def recorded_with(name: str) -> None:
        def fail(*args: Any, **kwargs: Any) -> Any:
            called.append(name)
            raise Planted

        def planted(*args: Any) -> Any:
            given = needs(*args)
            tried.update(one for one, value in vars(given).items() if callable(value) and not isinstance(value, type))
            if name:
                vars(given)[name] = fail
            return given

        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Planted):
            patch.setattr(path, planted)
            with capture(tmp_path, overwrite=True):
                small_step(x)

    def count() -> int:
        x.grad = None
        gc.collect()
        return sys.getrefcount(x)

    tried: set[str] = set()
    recorded_with("")
    before = count()
    for name in sorted(tried):
        recorded_with(name)
        assert count() == before, name
    assert len(set(called)) > 8
