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
from pathlib import Path
from typing import Any

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


# By a name: the kernel, and the API that is wrong.
FAULTS: dict[str, tuple[str, Callable[..., Tensor], str]] = {
    "gelu 1 % off": ("gelu", _gelu, "gelu"),
    "log(1 + x)": ("log1p", _log1p, "log1p"),
    "16-bit sums": ("sum.dim_IntList", _sum, "sum"),
    "tile edge": ("tanh", _tanh, "tanh"),
    "inf for large scores": ("sigmoid", _sigmoid, "sigmoid"),
    "softmax without max": ("_softmax", _softmax, "softmax"),
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 256), nn.Linear(256, 32)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.first(x))
        scores = torch.softmax(self.second(hidden) * 300, dim=-1)
        gate = torch.sigmoid(torch.tanh(hidden) * 6).sum(dim=1, keepdim=True)
        return torch.log1p(scores * 1e-3) * gate


def train(start: Callable[[], None], stop: Callable[[], None], end: Callable[[], None], steps: int) -> float:
    """Seconds of a step."""
    torch.manual_seed(0)
    model, x = Net().bfloat16(), torch.randn(16, 32).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
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
    """Prints the multiples of a plain step's time, the least of some rounds."""
    torch.set_num_threads(1)
    plain = min(train(nothing, nothing, nothing, 20) for _ in range(ROUNDS))
    ways: dict[str, dict[str, Any]] = {"each call": {}}
    if tool != "msprobe":
        ways["sample=1000"] = {"sample": 1000}
    found = {}
    for name, more in ways.items():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = with_tool(tool, folder, "improve_precision", 20, **more) / plain
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
    for fault in ("", *FAULTS):
        names = {mode: set(asked(python, "--one", tool, fault, mode)) for mode in MODES}
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
