"""Calls in which zero meets NaN or an infinity: how many NaN the formula gives, the kernels give, and the verdicts.

    python benchmarks/zero_times_nan.py

IEEE arithmetic says that zero times NaN is NaN, and zero times an infinity too. For each call of
tests/evidence/nan_calls.py a line has the number of NaN by the formula in float64, in torch's and in Paddle's kernels
in float32 (torch's with oneDNN and without), and the worst verdict on those kernels in float32, bfloat16 and float16,
on the CPU and under another device name.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from pytest_probe.check import Checker, RunRequest  # noqa: E402
from pytest_probe.model.verdict import Verdict  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402
from tests.evidence.nan_calls import CALLS, Function, NanCall  # noqa: E402
from tests.support.devices import Emulated  # noqa: E402

# Dtype and device. The CPU's gradients of float16 convolutions overflow inside (docs/findings.md), NaN or not; Paddle's
# CPU has 16 bit in emulation alone.
TORCH = (("float32", "cpu"), ("float32", "other"), ("bfloat16", "cpu"), ("bfloat16", "other"), ("float16", "other"))
PADDLE = (("float32", "cpu"), ("float32", "other"), ("bfloat16", "cpu"), ("float16", "cpu"))
WORST = ("error", "warning", "skip", "pass")


class Renamed:
    """Paddle's CPU under another name."""

    name = "other"

    def __init__(self, name: str) -> None:
        pass

    def put(self, tensor: Any) -> Any:
        return tensor.clone()

    def call(self, function: Any, args: Any, kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def get(self, tensor: Any) -> Any:
        return tensor


def torch_verdict(call: NanCall, dtype: str, device: str, function: Function | None = None) -> Verdict:
    """Of a function in the place of the call's own."""
    registry = Registry.default()
    registry.devices["other"] = Emulated
    given = [torch.from_numpy(array).to(getattr(torch, dtype)) for array in call.inputs()]
    (found,) = Checker(RunRequest(device=device), registry).compare(
        function or call.torch, call.torch, given, key="call"
    )
    return found


def paddle_verdict(call: NanCall, dtype: str, device: str) -> Verdict:
    import paddle

    registry = Registry.default()
    registry.devices["other"] = Renamed
    assert call.paddle is not None
    function = functools.partial(call.paddle, paddle)
    request = RunRequest(device=device, emulate=dtype != "float32" and device == "cpu")
    given = [paddle.to_tensor(array).astype(dtype) for array in call.inputs()]
    (found,) = Checker(request, registry, framework="paddle").compare(function, function, given, key="call")
    return found


def nan_counts(call: NanCall) -> tuple[str, ...]:
    """By the formula, in torch's kernels with oneDNN and without, in Paddle's."""
    arrays = call.inputs()
    given = [torch.from_numpy(array).float() for array in arrays]
    found = [np.isnan(call.formula(*arrays)).sum(), torch.isnan(call.torch(*given)).sum().item()]
    with torch.backends.mkldnn.flags(enabled=False):
        found.append(torch.isnan(call.torch(*given)).sum().item())
    return (*map(str, found), _of_paddle(call))


def _of_paddle(call: NanCall) -> str:
    if call.paddle is None or not has_paddle():
        return "-"
    import paddle

    given = [paddle.to_tensor(array).astype("float32") for array in call.inputs()]
    return str(int(paddle.isnan(call.paddle(paddle, *given)).sum()))


@functools.cache
def has_paddle() -> bool:
    try:
        import paddle  # noqa: F401
    except ImportError:
        return False
    return True


def verdicts(call: NanCall, framework: str) -> Iterator[tuple[str, str, Verdict]]:
    """By dtype and device."""
    runs, judge = (TORCH, torch_verdict) if framework == "torch" else (PADDLE, paddle_verdict)
    for dtype, device in runs:
        yield dtype, device, judge(call, dtype, device)


def worst(call: NanCall, framework: str) -> str:
    if framework == "paddle" and (call.paddle is None or not has_paddle()):
        return "-"
    return min((verdict.verdict for _, _, verdict in verdicts(call, framework)), key=WORST.index)


def main() -> None:
    warnings.simplefilter("ignore")
    print("| call | NaN by the formula | torch | without oneDNN | Paddle | verdict on torch | on Paddle |")
    print("|---|---|---|---|---|---|---|")
    for name, call in CALLS.items():
        print("|", " | ".join([name, *nan_counts(call), worst(call, "torch"), worst(call, "paddle")]), "|", flush=True)


if __name__ == "__main__":
    main()
