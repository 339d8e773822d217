"""What timing a program costs: CPU time a call and a training step, with and without, in one run, as Markdown tables.

    python benchmarks/timing_overhead.py [--rounds N] [--apitimewrapper PYTHON]

One thread of the CPU. A call: each function 5,000 times a round on tensors of two elements, plain and timed in turn,
the least CPU time of the thread over the rounds. `--backward` is timed on 20 calls one after another with one backward,
and told for one of them. A step: those of capture_overhead.py's GPT (d = 256), and of one of d = 128, forward, backward
and AdamW; the CPU time of the process. PYTHON is an interpreter with apitimewrapper and MindSpore, which apitimewrapper
imports; it times the same calls with parall_execute=True, since it needs a GPU otherwise, and prints none of them.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))

CALLS = 5_000
# Calls between two backwards, which cost something themselves.
CHAIN = 20
SIZES = {"GPT, d = 256": (64, 256, 8, 4, 128, 4), "GPT, d = 128": (64, 128, 4, 4, 64, 8)}
BACKWARD = "`--backward`"
WAYS: dict[str, dict[str, bool]] = {
    "timed": {},
    "`--nested`": {"nested": True},
    BACKWARD: {"backward": True},
    "`--by-shape`": {"by_shape": True},
}


def functions(grad: bool) -> dict[str, Callable[[], Any]]:
    a, b = torch.randn(2, requires_grad=grad), torch.randn(2)
    if grad:
        one = torch.ones(2)

        def chain() -> None:
            x = a
            for _ in range(CHAIN):
                x = torch.sin(x)
            torch.autograd.grad(x, a, one)

        return {"torch.sin and its backward": chain}
    return {"torch.add": lambda: torch.add(a, b), "a + b": lambda: a + b, "F.relu": lambda: F.relu(a)}


def spent(function: Callable[[], Any], calls: int) -> float:
    """CPU seconds of this thread a call."""
    began = time.thread_time()
    for _ in range(calls):
        function()
    return (time.thread_time() - began) / calls


def in_turn(
    functions: dict[str, Callable[[], Any]], timed: Callable[[], AbstractContextManager[Any]], rounds: int, calls: int
) -> dict[str, tuple[float, float]]:
    """The least CPU seconds a call, plain and timed."""
    least = {name: [float("inf")] * 2 for name in functions}
    for _ in range(rounds):
        for index, around in enumerate((nullcontext, timed)):
            with around():
                for name, function in functions.items():
                    function()
                    least[name][index] = min(least[name][index], spent(function, calls))
    return {name: (plain, other) for name, (plain, other) in least.items()}


def costs_of_calls(timed: Callable[..., AbstractContextManager[Any]], rounds: int) -> Iterator[str]:
    for way, options in WAYS.items():
        calls = CHAIN if way == BACKWARD else 1
        found = in_turn(functions(way == BACKWARD), functools.partial(timed, **options), rounds, CALLS // calls)
        for name, both in found.items():
            plain, other = (1e6 * one / calls for one in both)
            yield f"| {way} | {name} | {plain:.2f} | {other:.2f} | {other - plain:+.2f} |"


def costs_of_steps(
    timed: Callable[..., AbstractContextManager[Any]], rounds: int, ways: dict[str, Any]
) -> Iterator[str]:
    training = importlib.import_module("overhead.pytorch").training
    for size, numbers in SIZES.items():
        step = training(*numbers)
        step()
        for way, options in ways.items():
            plain, other = in_turn({size: step}, functools.partial(timed, **options), rounds, 1)[size]
            yield f"| {way} | {size} | {plain * 1e3:.1f} | {other * 1e3:.1f} | {other / plain:.3f}x |"


@contextlib.contextmanager
def apitimewrapper() -> Iterator[None]:
    """In an interpreter that has it. What it has replaced stays so: calls are plain only before."""
    from apitimewrapper import start_hook_torch_net  # type: ignore[import-not-found]
    from apitimewrapper.torch_wrap import global_param  # type: ignore[import-not-found]

    start_hook_torch_net(hook_inside=False, parall_execute=True)
    global_param.g_stop_torch_print = True
    yield


def beside() -> None:
    """The table of apitimewrapper, by its own interpreter."""
    grad_free = functions(False)
    for function in grad_free.values():
        function()
    plain = {name: min(spent(function, CALLS) for _ in range(5)) for name, function in grad_free.items()}
    with contextlib.redirect_stdout(io.StringIO()), apitimewrapper():
        # Operators and names are looked up anew, since it replaces attributes.
        other = {name: min(spent(function, CALLS) for _ in range(3)) for name, function in functions(False).items()}
    for name in plain:
        more = (other[name] - plain[name]) * 1e6
        print(f"| apitimewrapper 0.0.7 | {name} | {plain[name] * 1e6:.2f} | {other[name] * 1e6:.2f} | {more:+.2f} |")


def matmuls(timed: Callable[..., AbstractContextManager[Any]]) -> str:
    """How much of the time of a loop of large products is in the rows."""
    a = torch.randn(768, 768)
    with timed() as found:
        began = time.perf_counter()
        for _ in range(40):
            a @ a
        wall = time.perf_counter() - began
    own = sum(spent.own for _, spent in found.rows()) / 1e6
    return f"\nA loop of 40 products of 768 x 768: the rows add up to {own / wall:.4f} of its time."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--apitimewrapper", metavar="PYTHON")
    parser.add_argument("--beside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.beside:
        beside()
        return
    from pytest_probe import timing

    print("| way | call | plain, us | timed, us | more, us |\n|---|---|---|---|---|")
    for line in costs_of_calls(timing, options.rounds):
        print(line, flush=True)
    if options.apitimewrapper:
        with tempfile.TemporaryDirectory() as folder:
            command = [options.apitimewrapper, os.path.abspath(__file__), "--beside"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
        print(
            "".join(f"{line}\n" for line in done.stdout.splitlines() if line[:1] == "|") or done.stderr[-500:], end=""
        )
    print("\n| way | step | plain, ms | timed, ms | ratio |\n|---|---|---|---|---|")
    for line in costs_of_steps(timing, options.rounds, {name: WAYS[name] for name in ("timed", BACKWARD)}):
        print(line, flush=True)
    print(matmuls(timing))


if __name__ == "__main__":
    main()
