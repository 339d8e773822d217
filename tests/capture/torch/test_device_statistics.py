"""Statistics as a device computes them: by Triton's kernels, which its interpreter runs here, and by torch's operators.

Without Triton (`pip install triton`) those of the kernels are skipped.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_probe.capture.config import read_config
from pytest_probe.capture.frequent_values import layout_of, places
from pytest_probe.capture.snapshot import Seen
from pytest_probe.capture.torch import device_statistics
from pytest_probe.capture.torch.device_statistics import DeviceStatistics
from pytest_probe.capture.torch.statistics import decoded
from pytest_probe.capture.torch.values import Values
from pytest_probe.frameworks.torch.arrays import FLOAT4

CPU = torch.device("cpu")
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
CODES = tuple(getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"))
INTEGERS = tuple(getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))
COMPLEX = (torch.complex64, torch.complex128)


def raising(error: Exception) -> None:
    raise error


def no_stream(device: torch.device) -> None:
    raise RuntimeError(f"{device} has no streams")


def tensors() -> Iterator[tuple[str, torch.Tensor]]:
    drawn = torch.Generator().manual_seed(0)
    for dtype in (*FLOATS, *CODES, *INTEGERS, *COMPLEX, torch.bool):
        for size in (1, 2, 1024, 1025, 4097, 12_000):
            yield f"{dtype} {size}", (torch.randn(size, generator=drawn) * 40).abs().to(dtype)
            if not str(dtype).startswith("torch.uint") and dtype is not torch.bool:
                yield f"{dtype} {size} of both signs", (torch.randn(size, generator=drawn) * 40).to(dtype)
    base = torch.randn(6, 5, 20, 30, generator=drawn)
    for dtype in (*FLOATS, torch.int32, torch.bool, torch.float8_e5m2):
        cast = base.to(dtype)
        yield f"{dtype} transposed", cast.permute(2, 0, 3, 1)
        yield f"{dtype} a gap", cast[:, 1:4]
        yield f"{dtype} two gaps", cast[:, 1:4, ::2]
        yield f"{dtype} three gaps", cast[::2, 1:4, ::2, ::3]
        yield f"{dtype} four gaps", cast[::2, ::2, ::3, ::2].permute(1, 3, 0, 2)
        yield f"{dtype} expanded", cast[:1, :, :1].expand(4, 5, 7, 30)
        yield f"{dtype} a scalar", cast[1, 2, 3, 4]
        yield f"{dtype} not aligned", cast.reshape(-1)[3:]
    for dtype in FLOATS:
        for size in (5, 5000):
            for special in (math.nan, math.inf, -math.inf):
                one = torch.randn(size, generator=drawn).to(dtype)
                one[size // 2] = special
                yield f"{dtype} {size} with {special}", one
                yield f"{dtype} {size} all {special}", torch.full((size,), special, dtype=dtype)
            both = torch.randn(size, generator=drawn).to(dtype)
            both[0], both[-1] = math.inf, -math.inf
            yield f"{dtype} {size} both inf", both
            both[1] = math.nan
            yield f"{dtype} {size} all kinds", both
        yield f"{dtype} zeros", torch.zeros(3000, dtype=dtype)
        yield f"{dtype} largest", torch.full((5000,), torch.finfo(dtype).max, dtype=dtype)
        yield f"{dtype} smallest", torch.full((5000,), -torch.finfo(dtype).tiny, dtype=dtype)
    for dtype in (torch.int64, torch.int32, torch.int8):
        yield f"{dtype} border", torch.tensor([torch.iinfo(dtype).max, torch.iinfo(dtype).min + 1, 3], dtype=dtype)
    yield "int64 beyond float64", torch.tensor([2**60 + 1, -(2**60) - 3])
    yield "a negative view", torch.full((50,), 3 + 4j).conj().imag
    yield "conjugate", torch.full((50,), 3 + 4j).conj()
    yield "cancels", torch.tensor([1e8, 1.0, -1e8] * 3000)
    yield "float4", torch.arange(256, dtype=torch.uint8).view(FLOAT4)  # type: ignore[arg-type]


def counted(device: DeviceStatistics, tensor: torch.Tensor) -> Seen:
    seen = Seen("torch.Tensor", str(tensor.dtype), tensor.shape, False)
    if not tensor.is_contiguous():
        seen.stride = tensor.stride()
    layout = tensor.numel() if tensor.is_contiguous() else layout_of(tensor.shape, tensor.stride())
    looked = tensor.is_floating_point() and not tensor.is_neg() and tensor.dtype is not FLOAT4
    device.count(tensor, seen, layout, places(tensor.shape, layout, tensor.is_contiguous()) if looked else None)
    return seen


def on_the_cpu(tensors: list[torch.Tensor]) -> list[Seen]:
    taking = Values(read_config(None, dump_path="d"))
    found = [taking.take(tensor) for tensor in tensors]
    taking.settle()
    return found


EXACT = ("max", "min", "nan", "inf", "negative_inf", "true")
# Operators know no extremes of the finite elements alone.
KERNELS = (*EXACT, "high", "low")


def differences(*, kernels: bool, together: bool = False) -> list[str]:
    """From the CPU's numbers, where the CPU is a device with one stream that counts in this way; together: all tensors
    as those of one list."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.accelerator, "current_stream", lambda device: SimpleNamespace(stream_id=0))
        patch.setattr(torch, "Stream", no_stream)
        patch.setattr(device_statistics, "_TRITONS", {"cpu"} if kernels else set())
        patch.setattr(device_statistics, "_say_failed", raising)
        device = DeviceStatistics(CPU)
        names, all_of_them = zip(*tensors(), strict=True)
        assert len(names) >= 300
        with device.together() if together else nullcontext():
            found = [counted(device, tensor) for tensor in all_of_them]
        device.settle()
    fields = KERNELS if kernels else EXACT
    wrong = []
    for name, tensor, here, there in zip(names, all_of_them, on_the_cpu(list(all_of_them)), found, strict=True):
        same = all(repr(getattr(here, field)) == repr(getattr(there, field)) for field in fields)
        if not (same and alike(here.mean, there.mean, tensor) and alike(here.norm, there.norm, tensor)):
            wrong.append(shown(name, here, there))
    return wrong


def test_operators_give_the_numbers_of_the_cpu() -> None:
    assert differences(kernels=False) == []


def test_kernels_give_the_numbers_of_the_cpu() -> None:
    """In a process of its own: Triton is interpreted, or it is not, from its import on."""
    if find_spec("triton") is None:
        pytest.skip("no Triton: pip install triton")
    program = f"""
import {__name__} as test
for together in (False, True):
    print(*test.differences(kernels=True, together=together), sep='\\n', end='')
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def shown(name: str, here: Seen, there: Seen) -> str:
    fields = {field: (getattr(here, field), getattr(there, field)) for field in (*KERNELS, "mean", "norm", "failed")}
    return f"{name}: { ({field: both for field, both in fields.items() if repr(both[0]) != repr(both[1])}) }"


def alike(here: Any, there: Any, tensor: torch.Tensor) -> bool:
    if not isinstance(here, float):
        return repr(here) == repr(there)
    rounds = tensor.numel() > 4096 or tensor.dtype is torch.complex64
    size = (tensor.abs() if tensor.is_complex() else decoded(tensor)).double()
    return math.isclose(here, there, rel_tol=3e-7 if rounds else 1e-13, abs_tol=1e-13 * float(size.abs().mean()))


@pytest.mark.parametrize(("name", "count"), [("pytest_probe_count", 17), ("pytest_probe_count_all", 4)])
def test_a_compiled_kernel_is_for_all_numbers(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from pytest_probe.capture.torch import device_kernel

    kernel, started = getattr(device_kernel, name), list[tuple[Any, ...]]()

    class Kernel:
        __name__ = name

        def __getitem__(self, grid: Any) -> Any:
            def start(*args: Any, **constants: Any) -> Kernel:
                started.append((*args, *constants.values()))
                assert list(kernel.arg_names)[len(args) :] == list(constants) or not constants
                return self

            return start

    monkeypatch.setattr(device_statistics, "_compiled", {})
    device, fake = DeviceStatistics(CPU), Kernel()
    device._kernels = device_kernel
    for first in (0, 100):
        device._run(fake, (torch.float32, True), (1, 1, 1), range(first, first + count))
    assert [len(args) for args in started] == [len(kernel.arg_names)] * 2
    assert started[1][:count] == tuple(range(100, 100 + count))
    assert [each.name for each in kernel.params if not (each.is_constexpr or each.do_not_specialize)] == []


@pytest.mark.parametrize("gaps", range(5))
def test_a_sample_is_inside_the_memory_that_is_read(gaps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: SimpleNamespace(stream_id=0))
    monkeypatch.setattr(torch, "Stream", no_stream)
    device, started = DeviceStatistics(CPU), list[tuple[int, ...]]()
    kernels = SimpleNamespace(DTYPES={torch.float32: ()}, MOST_PARTS=1, parts_of=lambda size: 1, pytest_probe_count="")
    monkeypatch.setattr(device, "_kernels", kernels)
    monkeypatch.setattr(device, "_run", lambda kernel, kind, grid, args: started.append(args))
    tensor = torch.ones(6, 8, 10, 12)[(slice(None, None, 2),) * gaps]
    counted(device, tensor)
    ((address, size, e0, s0, e1, s1, s2, *sample), *_) = (args[:13] for args in started)
    copied = address != tensor.data_ptr()
    assert copied == (gaps > 2)
    last = size - 1
    reach = last % e0 * s0 + last // e0 % e1 * s1 + last // e0 // e1 * s2 if e0 * e1 > 1 else last
    assert math.prod(sample[:3]) > 100
    assert sum((extent - 1) * stride for extent, stride in zip(sample[:3], sample[3:], strict=True)) <= reach
