"""What recording costs: the time of a training step with and without, in one run, as a Markdown table.

    python benchmarks/capture_overhead.py [--framework NAME] [--steps N] [--msprobe PYTHON] [--paddleapex CHECKOUT]

Steps of a GPT (d = 256, 4 layers, T = 128, B = 4) and of a tiny one (d = 32, 2 layers, T = 16, B = 2), forward,
backward and AdamW (of MindSpore SGD) on one thread of the CPU; of MindSpore also a small CNN, of torch that, the tiny
one's forward alone, 1,200 calls on 64 x 128 elements, and one call. Plain and recorded steps take turns. Wall times are
the least of each. CPU is that of all threads, the writer's with it: the median of the pairs, in brackets the quartiles.
A recorded step lasts from start() to the end of step(), by which it is on the disk. A call is one forward entry. "not
compiled" is without the compiled kernel; where there is none that row is left out. --msprobe names an interpreter with
mindstudio-probe, whose PrecisionDebugger then records the same steps; --paddleapex a checkout of PaddleAPEX, whose
Tracer records those of Paddle, its functions less those that break on Paddle 3. For Paddle the last line is how fast
tensors are written beside paddle.save of the same ones, for torch what a function mode costs that does nothing.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).parent.parent))

NOT_COMPILED, NOT_STARTED = "statistics, not compiled", "installed, not started"
WAYS = ("statistics", NOT_COMPILED, "without stacks", "structure", "md5", "tensor", NOT_STARTED)
WAYS_OF_OTHERS = ("statistics", NOT_COMPILED, "structure")
OPTIONS: dict[str, dict[str, Any]] = {
    "without stacks": {"extra_info": False},
    "structure": {"task": "structure"},
    "md5": {"summary_mode": "md5"},
    "tensor": {"task": "tensor"},
}


SIZES = {"tiny GPT": (64, 32, 4, 2, 16, 2), "GPT": (512, 256, 8, 4, 128, 4)}


def training(size: str, framework: str) -> Callable[[], None]:
    """One training step of the model of that size, or one of the others."""
    steps = importlib.import_module(f"overhead.{framework}")
    step: Callable[[], None] = steps.training(*SIZES[size]) if size in SIZES else steps.OTHERS[size]()
    return step


# Of plain steps, and of recorded ones.
Times: TypeAlias = tuple[list[float], list[float]]


# An environment of msprobe's has no msgspec.
@dataclass(frozen=True)
class Cost:
    """Seconds of plain steps and of recorded ones; calls is the number of forward entries of a step."""

    wall: Times
    cpu: Times
    calls: int

    def pairs(self) -> Iterator[tuple[float, float]]:
        """CPU seconds of each plain step and of the recorded one behind it."""
        return zip(*self.cpu, strict=False)

    def row(self, size: str, way: str) -> str:
        alone, both = map(min, self.wall)
        low, middle, high = quartiles(recorded / plain for plain, recorded in self.pairs())
        spent = quartiles(recorded - plain for plain, recorded in self.pairs())[1]
        each = f"{1e6 * spent / self.calls:.1f}" if self.calls else ""
        cpu = f"{middle:.2f}x ({low:.2f} to {high:.2f})"
        cells = (size, way, f"{1e3 * alone:.2f}", f"{1e3 * both:.2f}", f"{both / alone:.2f}x",
                 cpu, f"{self.calls:,}", each)  # fmt: skip
        return f"| {' | '.join(cells)} |"


def quartiles(numbers: Iterable[float]) -> tuple[float, float, float]:
    """The lower one, the median and the upper one."""
    low, middle, high = statistics.quantiles(numbers, method="inclusive")
    return low, middle, high


def measured(step: Callable[[], None], recorded: Callable[[], None], steps: int) -> tuple[Times, Times]:
    """Wall and CPU seconds of plain and of recorded steps, in turn."""
    wall: Times = ([], [])
    cpu: Times = ([], [])
    for _ in range(steps):
        for index, one in enumerate((step, recorded)):
            began, spent = time.perf_counter(), time.process_time()
            one()
            wall[index].append(time.perf_counter() - began)
            cpu[index].append(time.process_time() - spent)
    return wall, cpu


def cost(size: str, steps: int, debugger: Any, folder: Path, framework: str = "pytorch") -> Cost:
    """The cost of a debugger, ours or msprobe's; None: nothing is done around the step."""
    step = training(size, framework)
    for _ in range(3):
        step()

    recorded = step if debugger is None else functools.partial(_recorded, debugger, step)
    return Cost(*measured(step, recorded, steps), _calls(folder))


def _recorded(debugger: Any, step: Callable[[], None]) -> None:
    debugger.start()
    step()
    debugger.stop()
    debugger.step()


def _calls(folder: Path) -> int:
    path = next(folder.glob("step0/*/dump.json"), None)
    return 0 if path is None else sum(name.endswith(".forward") for name in json.loads(path.read_text())["data"])


def ours(steps: int, framework: str) -> Iterator[str]:
    from pytest_probe import PrecisionDebugger
    from pytest_probe.capture import kernel

    compiled = kernel.compiled
    others = importlib.import_module(f"overhead.{framework}").OTHERS
    for size in (*SIZES, *others):
        for way in WAYS if size in SIZES else WAYS_OF_OTHERS:
            if way == NOT_COMPILED and compiled is None:
                continue
            with tempfile.TemporaryDirectory() as folder:
                # A capture asks when it is made.
                kernel.compiled = None if way == NOT_COMPILED else compiled
                debugger = PrecisionDebugger(dump_path=folder, framework=framework, **OPTIONS.get(way, {}))
                kernel.compiled = compiled
                few = max(3, steps // 5) if way == "tensor" else max(2, steps)
                shown = None if way == NOT_STARTED else debugger
                yield cost(size, few, shown, Path(folder), framework).row(size, way)


def msprobes(steps: int, framework: str) -> Iterator[str]:
    """In msprobe's own process: its statistics, with its own choice of APIs."""
    from importlib.metadata import version

    if framework == "mindspore":
        norm_for_msprobe()

        from msprobe.mindspore import PrecisionDebugger
    else:
        from msprobe.pytorch import PrecisionDebugger

    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.json"
            told = {"task": "statistics", "dump_path": folder, "rank": [], "step": [], "level": "L1",
                    "statistics": {"scope": [], "list": [], "data_mode": ["all"]}}  # fmt: skip
            path.write_text(json.dumps(told))
            way = f"msprobe {version('mindstudio-probe')} statistics"
            with suppress(AttributeError):
                PrecisionDebugger._instance = None
            yield cost(size, max(3, steps // 3), PrecisionDebugger(config_path=str(path)), Path(folder), framework).row(
                size, way
            )


def norm_for_msprobe() -> None:
    """MindSpore's CPU has no kernel of the norm that msprobe computes."""
    import mindspore
    import numpy as np

    mindspore.mint.norm = lambda tensor: mindspore.Tensor(np.linalg.norm(tensor.asnumpy()).astype(np.float32))


def paddleapexes(steps: int, checkout: str) -> Iterator[str]:
    """In PaddleAPEX's own process: its Tracer with its own list of functions, but for those that break Paddle 3."""
    import paddle  # noqa: F401 (names of the list lead there)
    import yaml

    package = Path(checkout) / "paddleapex/api_tracer"
    listed = yaml.safe_load((package / "configs/op_target.yaml").read_text())
    folder = Path(os.environ["APEX_FOLDER"])
    usable = [name for name in dict.fromkeys(listed["target_op"]) if _is_function(name)]
    (folder / "ops.yaml").write_text(yaml.safe_dump({"ignored_op": listed["ignored_op"], "target_op": usable}))
    told = {"op_target_path": str(folder / "ops.yaml"), "dump_root_path": str(folder / "dumps"), "profile_mode": True,
            "remote_path": str(folder), "Async_dump": False, "dump_mode": os.environ["APEX_MODE"], "dump_unique": True,
            "target_step": list(range(1000)), "split_dump": True}  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump(told))
    os.environ["APEX_CONFIG_PATH"] = str(folder / "config.yaml")
    sys.path[:0] = [checkout]
    sizes = {size: training(size, "paddle") for size in SIZES}
    plain = {size: measured(step, step, steps) for size, step in sizes.items()}
    with redirect_stdout(io.StringIO()):
        from paddleapex.api_tracer import Tracer

        tracer = Tracer()
        # It has no end of a step; and it goes on recording behind stop(), so that plain steps were measured before.
        tracer.step = lambda: None
        recorded = {size: measured(functools.partial(_recorded, tracer, step), step, max(3, steps // 4))
                    for size, step in sizes.items()}  # fmt: skip
    rows = []
    for size in SIZES:
        (wall, cpu), (traced_wall, traced_cpu) = plain[size], recorded[size]
        found = Cost((wall[0], traced_wall[0]), (cpu[0], traced_cpu[0]), 0)
        rows.append(found.row(size, f"PaddleAPEX {told['dump_mode']}"))
    yield from rows


def _is_function(path: str) -> bool:
    owner: Any = sys.modules["paddle"]
    for name in path.split(".")[1:]:
        owner = getattr(owner, name, None)
    return callable(owner) and not isinstance(owner, (property, type(sys)))


def _beside_paddleapex(steps: int, checkout: str) -> None:
    for mode in ("random", "real_data"):
        with tempfile.TemporaryDirectory() as folder:
            told = [sys.executable, __file__, "--inside-paddleapex", "--paddleapex", checkout, "--steps", str(steps)]
            environment = {**os.environ, "APEX_FOLDER": folder, "APEX_MODE": mode}
            found = subprocess.run(told, capture_output=True, text=True, check=True, env=environment)
            print("\n".join(line for line in found.stdout.splitlines() if line.startswith("| ")), flush=True)


def throughput() -> str:
    """How fast a step's tensors are written beside paddle.save of the same ones."""
    import paddle

    from pytest_probe import PrecisionDebugger

    step = training("GPT", "paddle")
    step()
    with tempfile.TemporaryDirectory() as folder:
        debugger = PrecisionDebugger(dump_path=folder, framework="paddle", task="tensor")
        (plain,), (recorded,) = measured(step, lambda: _recorded(debugger, step), 1)[0]
        files = list(Path(folder).glob("step0/*/dump_tensor_data/*.pt"))
        size = sum(file.stat().st_size for file in files) / 1e6
        tensors = [paddle.load(str(file)) for file in files]
        began = time.perf_counter()
        for number, tensor in enumerate(tensors):
            paddle.save(tensor, f"{folder}/{number}.pt")
        saved = time.perf_counter() - began
    ours, theirs = size / (recorded - plain), size / saved
    return f"tensors: {size:.0f} MB, {ours:.0f} MB/s; paddle.save of the same: {theirs:.0f} MB/s; {ours / theirs:.2f}"


def least() -> str:
    """What torch itself needs to show a call to anybody."""
    alone, inside = importlib.import_module("overhead.pytorch").empty_mode()
    return f"an addition of 256 elements: {1e6 * alone:.2f} us, in an empty function mode {1e6 * inside:.2f} us"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=20, help="steps of each kind (default: 20)")
    parser.add_argument(
        "--framework", choices=("pytorch", "paddle", "mindspore"), default="pytorch", help="(default: pytorch)"
    )
    parser.add_argument("--msprobe", metavar="PYTHON", help="an interpreter that has mindstudio-probe")
    parser.add_argument("--paddleapex", metavar="CHECKOUT", help="a checkout of PaddleAPEX")
    parser.add_argument("--inside-paddleapex", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--inside-msprobe", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside_paddleapex:
        print("\n".join(paddleapexes(given.steps, given.paddleapex)))
        return
    if not given.inside_msprobe:
        print("| model | way | plain ms | recorded ms | time | CPU | calls | CPU us a call |")
        print("|---|---|---|---|---|---|---|---|")
    for row in msprobes(given.steps, given.framework) if given.inside_msprobe else ours(given.steps, given.framework):
        print(row, flush=True)
    if given.msprobe:
        told = [given.msprobe, __file__, "--inside-msprobe", "--steps", str(given.steps),
                "--framework", given.framework]  # fmt: skip
        found = subprocess.run(told, capture_output=True, text=True, check=True)
        print("\n".join(line for line in found.stdout.splitlines() if line.startswith("| ")))
    if given.framework == "paddle" and given.paddleapex:
        _beside_paddleapex(given.steps, given.paddleapex)
    if not given.inside_msprobe:
        print({"paddle": throughput, "pytorch": least}.get(given.framework, str)())


if __name__ == "__main__":
    main()
