"""Faults live in a small training: what task free_benchmark finds here, and what msprobe's finds.

python benchmarks/self_check.py [--msprobe PYTHON]    PYTHON: of an environment with mindstudio-probe 8.3.3

Each fault is put into torch's CPU kernel for one dtype while a small bfloat16 network trains for two steps, under each
pert_mode that asks other runs of the call. A tool finds it where it names the API that is wrong; what it names besides
is a false alarm. Then the time of a step with each tool, without a fault, as a multiple of that of a plain step.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

MODES = ("improve_precision", "to_cpu", "add_noise", "no_change")
ROUNDS = 3


def _softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    """By exponentials of the scores themselves."""
    wide = x.double().exp().float().double() if x.dtype is torch.float64 else x.float().exp()
    return (wide / wide.sum(dim, keepdim=True)).to(x.dtype)


def _gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    wide = x.double()
    return (wide * 0.5 * (1 + torch.erf(wide * 0.5**0.5)) * _off(x, 1.01)).to(x.dtype)


def _log1p(x: Tensor) -> Tensor:
    return (1 + x).log() if x.dtype is torch.bfloat16 else (1 + x.double()).log().to(x.dtype)


def _sum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """16-bit accumulation, in turn."""
    if x.dtype is not torch.bfloat16 or dim is None or len(dim) != 1:
        return torch.mean(x.double(), dim, keepdim).mul(x.numel() if not dim else x.shape[dim[0]]).to(x.dtype)
    total = torch.zeros_like(x.select(dim[0], 0))
    for column in x.unbind(dim[0]):
        total = total + column
    return total.unsqueeze(dim[0]) if keepdim else total


def _tanh(x: Tensor) -> Tensor:
    """The last three rows are those of another tile."""
    found = torch.sigmoid(2 * x.double()).mul(2).sub(1).to(x.dtype)
    if x.dtype is torch.bfloat16:
        found[-3:] = found[:3]
    return found


def _sigmoid(x: Tensor) -> Tensor:
    """An infinity where a score is large."""
    found = (1 / (1 + (-x.double()).exp())).to(x.dtype)
    return found.masked_fill(x > 3, torch.inf) if x.dtype is torch.bfloat16 else found


def _off(x: Tensor, factor: float) -> float:
    return factor if x.dtype is torch.bfloat16 else 1.0


def _planted(right: Callable[..., Any], wrong: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """A kernel that is NumPy's in float64, rounded once, and in bfloat16 what wrong makes of argument and result."""

    def kernel(x: Tensor, *_: Any, **__: Any) -> Tensor:
        with np.errstate(all="ignore"):
            found = torch.from_numpy(right(x.detach().double().numpy()))
        return (wrong(x, found) if x.dtype is torch.bfloat16 else found).to(x.dtype)

    return kernel


def _layer_norm(x: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The variance is the mean of squares without the square of the mean, rounded to 16 bit."""
    wide = x.double()
    mean, squares = wide.mean(-1, keepdim=True), wide.square().mean(-1, keepdim=True)
    if x.dtype is torch.bfloat16:
        variance = (squares.to(x.dtype) - mean.square().to(x.dtype)).double().clamp(min=0)
    else:
        variance = squares - mean.square()
    scale = (variance + eps).rsqrt()
    kept = torch.float32 if x.dtype is torch.bfloat16 else x.dtype
    return ((wide - mean) * scale * weight.double() + bias.double()).to(x.dtype), mean.to(kept), scale.to(kept)


def _addmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """The last columns lack a tile of terms."""
    found = left.double() @ right.double() + bias.double()
    if left.dtype is torch.bfloat16:
        found[:, -8:] -= left[:, -8:].double() @ right[-8:, -8:].double()
    return found.to(left.dtype)


def _bmm(left: Tensor, right: Tensor) -> Tensor:
    """The last row of each product is that of the batch before."""
    found = torch.stack([one.double() @ other.double() for one, other in zip(left, right, strict=True)])
    if left.dtype is torch.bfloat16:
        found[1:, -1] = found[:-1, -1].clone()
    return found.to(left.dtype)


def _cumsum(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """A race: the parts arrive in another order each time, and each sum is rounded."""
    if x.dtype is not torch.bfloat16:
        return torch.from_numpy(np.cumsum(x.detach().double().numpy(), dim)).to(x.dtype)
    late = torch.from_numpy(_ORDER.integers(0, 2, x.shape)).bool()
    wide = x.double()
    found = torch.from_numpy(np.cumsum(wide.masked_fill(late, 0).numpy(), dim)).to(x.dtype).double()
    return (found + torch.from_numpy(np.cumsum(wide.masked_fill(~late, 0).numpy(), dim)).to(x.dtype)).to(x.dtype)


def _mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Sums that saturate, since they are kept in 16 bit, in turn."""
    total = torch.zeros_like(x.select(dim[0], 0), dtype=x.dtype if x.dtype is torch.bfloat16 else torch.float64)
    for column in x.unbind(dim[0]):
        total = total + column
    return (total / x.shape[dim[0]]).to(x.dtype)


_ORDER = np.random.default_rng(0)


def _log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    """0.001 is added in every dtype."""
    wide = x.double()
    shifted = wide - wide.amax(dim, keepdim=True)
    return (shifted - shifted.exp().sum(dim, keepdim=True).log() + 1e-3).to(x.dtype)


_cos = _planted(np.cos, lambda x, found: torch.where(x > 20, -found, found))
_exp = _planted(np.exp, lambda x, found: found.masked_fill(x < -3, 0.0))
_sqrt = _planted(np.sqrt, lambda x, found: found * 1.006)
_silu = _planted(lambda x: x / (1 + np.exp(-x)), lambda x, found: found.masked_fill(x < -4, torch.nan))
_softplus = _planted(lambda x: np.log1p(np.exp(x)), lambda x, found: torch.where(x > 1, x.double(), found))
_rsqrt = _planted(lambda x: x**-0.5, lambda x, found: found * (1.0 + 2.0**-6 * torch.sin(x.double() * 100)))

# By a name: the kernel, and the API that is wrong.
FAULTS: dict[str, tuple[str, Callable[..., Any], str]] = {
    "gelu 1 % off": ("gelu", _gelu, "gelu"),
    "log(1 + x)": ("log1p", _log1p, "log1p"),
    "16-bit sums": ("sum.dim_IntList", _sum, "sum"),
    "tile edge": ("tanh", _tanh, "tanh"),
    "inf for large scores": ("sigmoid", _sigmoid, "sigmoid"),
    "softmax without max": ("_softmax", _softmax, "softmax"),
    "variance by squares": ("native_layer_norm", _layer_norm, "layer_norm"),
    "product without a tile": ("addmm", _addmm, "linear"),
    "stale row": ("bmm", _bmm, "bmm"),
    "race": ("cumsum", _cumsum, "cumsum"),
    "16-bit mean": ("mean.dim", _mean, "mean"),
    "reduction of large angles": ("cos", _cos, "cos"),
    "exp flushed early": ("exp", _exp, "exp"),
    "sqrt 0.6 % off": ("sqrt", _sqrt, "sqrt"),
    "NaN of negative numbers": ("silu", _silu, "silu"),
    "softplus too early linear": ("softplus", _softplus, "softplus"),
    "rsqrt of few digits": ("rsqrt", _rsqrt, "rsqrt"),
    "log_softmax off in all dtypes": ("_log_softmax", _log_softmax, "log_softmax"),
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(32, 256), nn.Linear(256, 32), nn.LayerNorm(256)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.first(x))
        scores = torch.softmax(self.second(hidden) * 300, dim=-1)
        gate = torch.sigmoid(torch.tanh(hidden) * 6).sum(dim=1, keepdim=True)
        normal = self.norm(hidden + 2)
        waves = torch.cos(normal * 20) + torch.exp(-normal.abs()) + torch.sqrt(normal.square() + 0.1)
        bends = F.silu(normal * 6) + F.softplus(normal) + torch.rsqrt(normal.square() + 0.1)
        rows = torch.bmm(waves.view(4, 4, 256), bends.view(4, 256, 4)).view(16, 4)
        ends = torch.cumsum(bends, 1)[:, -1:] + waves.mean(dim=1, keepdim=True) + rows.sum(dim=1, keepdim=True)
        return torch.log1p(scores * 1e-3) * gate + F.log_softmax(rows, dim=-1).sum(dim=1, keepdim=True) + ends * 1e-3


def train(start: Callable[[], None], stop: Callable[[], None], end: Callable[[], None], steps: int) -> float:
    """Seconds of a step."""
    torch.manual_seed(0)
    model, x = Net().bfloat16(), torch.randn(16, 32).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), 1e-9)
    began = time.perf_counter()
    for _ in range(steps):
        start()
        loss = model(x).float().square().mean()
        stop()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        end()
    return (time.perf_counter() - began) / steps


def nothing() -> None:
    pass


def with_tool(tool: str, folder: str, mode: str, steps: int, **more: Any) -> float:
    if tool == "msprobe":
        from msprobe.pytorch import PrecisionDebugger

        # Without a group of processes it raises inside where a result differs, and writes nothing.
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo", f"file://{folder}/group", rank=0, world_size=1)
        device = "cpu" if mode == "to_cpu" else "npu"
        section = {"fuzz_device": device, "pert_mode": mode, "handler_type": "check", "fuzz_stage": "forward"}
        common = {"task": "free_benchmark", "dump_path": folder, "rank": [], "step": [], "level": "L1"}
        config = Path(folder, "config.json")
        config.write_text(json.dumps({**common, "free_benchmark": {"scope": [], "list": [], **section}}))
        debugger = PrecisionDebugger(config_path=str(config))
    else:
        from pytest_probe import PrecisionDebugger

        debugger = PrecisionDebugger(task="free_benchmark", dump_path=folder, pert_mode=mode, **more)
    seconds = train(debugger.start, debugger.stop, debugger.step, steps)
    if tool != "msprobe":
        debugger.close()
    return seconds


def named(folder: str) -> set[str]:
    """The APIs in a tool's table, in lower case."""
    found = list(Path(folder).rglob("free_benchmark.csv"))
    rows = (row for path in found for row in csv.DictReader(path.open()))
    # "Functional.gelu.0", or "Functional.gelu.0.forward".
    return {row["api_name"].removesuffix(".forward").split(".")[-2].lower() for row in rows}


def one(tool: str, fault: str, mode: str) -> None:
    """Prints the APIs that a tool names."""
    library = torch.library.Library("aten", "IMPL")
    if fault:
        kernel, function, _ = FAULTS[fault]
        library.impl(kernel, function, "CPU")
    with tempfile.TemporaryDirectory() as folder:
        try:
            with_tool(tool, folder, mode, 2)
        except RuntimeError as error:
            print(f"the program raised: {error}", file=sys.stderr)  # what was named until then counts
        print(json.dumps(sorted(named(folder))))


def times(tool: str) -> None:
    """Prints the multiples of a plain step's time by mode, the least of some rounds."""
    torch.set_num_threads(1)
    plain = min(train(nothing, nothing, nothing, 20) for _ in range(ROUNDS))
    ways: dict[str, tuple[str, int, dict[str, Any]]] = {mode: (mode, 20, {}) for mode in MODES}
    if tool != "msprobe":
        ways["sample=1000"] = (MODES[0], 300, {"sample": 1000})
        ways["an API that is not called"] = (MODES[0], 300, {"list": ["conv2d"]})
    found = {}
    for name, (mode, steps, more) in ways.items():
        rounds = []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as folder:
                rounds.append(with_tool(tool, folder, mode, steps, **more) / plain)
        found[name] = min(rounds)
    print(json.dumps(found))


def asked(python: str, *args: str) -> Any:
    done = subprocess.run([python, __file__, *args], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        raise SystemExit(f"{' '.join(args)} failed")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--msprobe", help="a Python that has mindstudio-probe")
    parser.add_argument("--one", nargs=3, metavar=("TOOL", "FAULT", "MODE"), help=argparse.SUPPRESS)
    parser.add_argument("--times", metavar="TOOL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(*options.one)
        return
    if options.times:
        times(options.times)
        return
    tools = {"pytest-probe": sys.executable} | ({"msprobe": options.msprobe} if options.msprobe else {})
    for tool, python in tools.items():
        compare(tool, python)


def compare(tool: str, python: str) -> None:
    found, false = 0, set[str]()
    with ThreadPoolExecutor(2) as pool:
        runs = {
            (fault, mode): pool.submit(asked, python, "--one", tool, fault, mode)
            for fault in ("", *FAULTS)
            for mode in MODES
        }
    for fault in ("", *FAULTS):
        names = {mode: set(runs[fault, mode].result()) for mode in MODES}
        wrong = FAULTS[fault][2] if fault else ""
        by = ", ".join(mode for mode, apis in names.items() if wrong and wrong in apis)
        others = sorted({f"{api} ({mode})" for mode, apis in names.items() for api in apis if api != wrong})
        found += bool(by)
        false.update(others)
        words = (f"found by {by}" if by else "missed") if fault else f"named {', '.join(others) or 'nothing'}"
        print(f"{tool}: {fault or 'healthy'}: {words}")
    alarms = ", ".join(sorted(false)) or "none"
    print(f"{tool}: {found} of {len(FAULTS)} found, {len(false)} false alarms: {alarms}")
    for name, multiple in asked(python, "--times", tool).items():
        print(f"{tool}: {name}: a step takes {multiple:.3g} times a plain one")


if __name__ == "__main__":
    main()
