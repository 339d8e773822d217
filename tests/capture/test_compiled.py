"""A capture with the compiled kernel is the one without it, but for the last digits of means and norms."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from pytest_probe import capture
from tests.support import models
from tests.support.capturing import content, recorded

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint64),
)


def differences(one: Any, other: Any, place: str) -> Iterator[str]:
    """Where two entries differ; addresses are each run's own, which the state of Paddle's generator holds as well."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            if key not in ("address", "rng"):
                yield from differences(one.get(key, "nothing"), other.get(key, "nothing"), f"{place}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{place}.{index}")
    elif place.endswith((".Mean", ".Norm")) and type(one) is type(other) is float and math.isfinite(one):
        if not math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-12):
            yield f"{place}: {one} {other}"
    elif json.dumps(one) != json.dumps(other):
        yield f"{place}: {one} {other}"


def both(
    record: Callable[[Path], dict[str, Any]], compiled: ModuleType, tmp_path: Path, used: frozenset[str]
) -> list[str]:
    """The differences between a capture without the kernel and one with it, of which at least these functions are
    used."""
    calls: list[str] = []

    class Counted:
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(compiled, name)

    found = []
    for kernel in (None, Counted()):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pytest_probe.capture.kernel.compiled", kernel)
            found.append(record(tmp_path / str(kernel is None)))
    assert used <= set(calls)
    assert len(found[0]) > 20
    return list(differences(found[0], found[1], ""))


@pytest.mark.parametrize("model", models.ALL)
def test_models_are_recorded_alike_with_and_without_the_kernel(
    model: str, compiled: ModuleType, tmp_path: Path
) -> None:
    def record(folder: Path) -> dict[str, Any]:
        torch.manual_seed(0)
        step = models.ALL[model]()
        return recorded(folder, step)

    assert both(record, compiled, tmp_path, frozenset({"summary"})) == []


def tensors() -> Iterator[torch.Tensor]:
    """Small and large, of every dtype, in order and not, with what is not finite and what stands many times."""
    generator = torch.Generator().manual_seed(0)
    for dtype in DTYPES:
        for size in (0, 1, 5, 70, 1000, 40_000):
            numbers = torch.randn(size, generator=generator) * 40
            tensor = (numbers.abs() if dtype in (torch.uint8, torch.uint16, torch.uint64) else numbers).to(dtype)
            yield tensor
            if size > 5:
                yield from (tensor[1:], tensor.reshape(10, -1).T, tensor.reshape(10, -1)[:, ::2])
            if size > 5 and dtype.is_floating_point:
                wide = tensor.float()
                yield wide.clamp(-1, 1).to(dtype)
                yield wide.relu().to(dtype)
                wide[3] = math.nan if dtype is torch.float8_e4m3fn else -math.inf
                yield wide.to(dtype)
                yield torch.zeros(size, dtype=dtype)
                yield (-torch.zeros(size)).to(dtype)
    yield torch.tensor([1e200, -1e200] * 2000, dtype=torch.float64)
    yield torch.full((100,), 3 + 4j).conj().imag


def test_every_dtype_size_and_layout(compiled: ModuleType, tmp_path: Path) -> None:
    inputs = list(tensors())

    def record(folder: Path) -> dict[str, Any]:
        return recorded(folder, lambda: [torch.detach_copy(tensor) for tensor in inputs])

    assert both(record, compiled, tmp_path, frozenset({"measure", "summary", "sample"})) == []


def test_a_paddle_model_is_recorded_alike_with_and_without_the_kernel(compiled: ModuleType, tmp_path: Path) -> None:
    paddle = pytest.importorskip("paddle")
    from tests.support import paddle_models

    def record(folder: Path) -> dict[str, Any]:
        paddle.seed(0)
        step = paddle_models.gpt()
        with capture(folder, framework="paddle"):
            step()
        found: dict[str, Any] = content(folder)["data"]
        return found

    assert both(record, compiled, tmp_path, frozenset({"summary"})) == []
