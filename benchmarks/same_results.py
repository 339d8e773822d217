"""Do two versions of pytest-probe give the same results? Every dump of this repository, on healthy and faulty devices.

    python benchmarks/same_results.py run OUT [--python OTHER/bin/python | --checkout OTHER]
    python benchmarks/same_results.py compare OUT_BEFORE OUT_AFTER

`run` checks the dumps with the version that the interpreter imports, or with that of a checkout, and keeps each
results.jsonl below OUT; the run "paddle" checks those of PaddleAPEX, where Paddle is installed. `compare` prints how
many results there are on both sides and every one that differs in anything but its duration.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
STANDARDS = (
    "noise", "exact", "absolute_threshold", "binary", "ulp", "thousandth", "accumulative", "msprobe", "msprobe-1.0",
    "msprobe-8", "msprobe-26", "paddleapex", "mindspore", "ptdbg",
)  # fmt: skip
# Name of a run: its options. "other" is the CPU by another name; the faulty devices show what an error says.
RUNS = {
    "recorded": ["--probe-dtype=recorded"],
    "bfloat16": ["--probe-dtype=bfloat16"],
    "float16": ["--probe-dtype=float16"],
    "other": ["--probe-device=other", "--probe-dtype=recorded,bfloat16,float16"],
    "scaled": ["--probe-device=scaled", "--probe-dtype=recorded,bfloat16"],
    "tail": ["--probe-device=tail"],
    "tf32": ["--probe-device=tf32"],
    "modes": ["--probe-device=tf32", "--probe-allow=tf32,ftz"],
    "repeat": ["--probe-repeat=2"],
    "large": ["--probe-flops=2e4"],
    "paddle": ["--probe-device=cpu", "--probe-dtype=recorded,bfloat16,float16"],
    **{f"standard-{name}": [f"--probe-standard={name}", "--probe-device=scaled"] for name in STANDARDS},
}
CONFTEST = """
import torch


class Device:
    def __init__(self, name, change_inputs=None, change_outputs=None):
        self.name, self.inputs, self.outputs = name, change_inputs, change_outputs

    def put(self, tensor):
        return tensor.clone()

    def call(self, function, args, kwargs):
        if self.inputs is not None:
            args = mapped(list(args), self.inputs)
            kwargs = mapped(dict(kwargs), self.inputs)
        result = function(*args, **kwargs)
        return result if self.outputs is None else mapped(result, self.outputs)

    def get(self, tensor):
        return tensor.clone()


def mapped(value, change):
    if isinstance(value, torch.Tensor):
        return change(value) if value.is_floating_point() else value
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {name: mapped(item, change) for name, item in value.items()}
    return value


def tail(tensor):
    mask = torch.ones(tensor.numel(), dtype=tensor.dtype)
    mask[-max(1, tensor.numel() // 8):] = 0
    return tensor * mask.reshape(tensor.shape)


def tf32(tensor):
    if tensor.dtype != torch.float32:
        return tensor
    with torch.no_grad():
        bits = tensor.detach().contiguous().view(torch.int32)
        rounded = ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
    return tensor + (rounded - tensor).detach()


def pytest_probe_register(registry):
    registry.devices["other"] = lambda name: Device("other")
    registry.devices["scaled"] = lambda name: Device("scaled", None, lambda tensor: tensor * 1.001)
    registry.devices["tail"] = lambda name: Device("tail", None, tail)
    registry.devices["tf32"] = lambda name: Device("tf32", tf32)
"""


def paddle_dumps(folder: Path) -> list[Path]:
    """Those of PaddleAPEX's formats."""
    found = [shutil.copytree(ROOT / "cases/paddle-gpt", folder / "paddle-gpt")]
    for packed in sorted((ROOT / "tests/data/paddleapex").glob("*.json.gz")):
        place = folder / packed.name.partition(".")[0]
        place.mkdir()
        (place / "forward_rank0.json").write_bytes(gzip.decompress(packed.read_bytes()))
        found.append(place)
    return found


def dumps(folder: Path) -> list[Path]:
    """The dumps of the repository, unpacked below a folder."""
    found = [shutil.copytree(ROOT / "cases/gpt", folder / "gpt")]
    for packed in sorted((ROOT / "tests/data").glob("msprobe-*/*/dump.json.gz")):
        place = folder / packed.parent.relative_to(ROOT / "tests/data")
        place.mkdir(parents=True)
        for file in packed.parent.glob("*.gz"):
            (place / file.name.removesuffix(".gz")).write_bytes(gzip.decompress(file.read_bytes()))
        found.append(place)
    for packed in sorted((ROOT / "tests/data").glob("msprobe-*/*.tar.gz")):
        place = folder / packed.parent.name / packed.name.removesuffix(".tar.gz")
        with tarfile.open(packed) as archive:
            archive.extractall(place, filter="data")
        found.append(place)
    return found


def run(out: Path, python: str, checkout: Path | None, names: list[str]) -> None:
    work = out / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "conftest.py").write_text(CONFTEST)
    (work / "pytest.ini").write_text("[pytest]\n")
    (work / "paddle").mkdir()
    given = {"": dumps(work), "paddle": paddle_dumps(work / "paddle")}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if checkout is not None:
        environment["PYTHONPATH"] = str(checkout.resolve())
    for name in names or RUNS:
        results = out / name
        shutil.rmtree(results, ignore_errors=True)
        command = [os.path.abspath(python), "-m", "pytest", "-q", "-n", "2", "--tb=no", "-p", "no:cacheprovider"]
        command += [f"--probe-dump={path}" for path in given[name if name in given else ""]]
        command += [*RUNS[name], f"--probe-out={results}"]
        subprocess.run(command, cwd=work, stdout=subprocess.DEVNULL, env=environment)
        print(f"{name}: {sum(1 for _ in read(results)):,} results", flush=True)


def read(folder: Path) -> Iterator[dict[str, Any]]:
    with (folder / "results.jsonl").open() as file:
        for line in file:
            outcome = json.loads(line.replace(str(folder.resolve().parent / "work"), "work"))
            del outcome["duration"]
            for output in outcome["outputs"]:
                if output["standard"] == "random":  # what a device draws is another thing in each run
                    output.update(metrics={}, measures={}, worst=[], reason="", detects=None)
                    outcome.update(reason="", notes=[])
                    (outcome.get("details") or {}).pop("plots", None)
            if outcome["verdict"] == "pass":  # the worst so far have details, which depends on who runs what
                outcome.pop("details", None)
            yield outcome


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Where two results differ: "outputs.0.metrics.noise_ratio: 1.5, 1.25"."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key), new.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{path}.{index}")
    elif old != new:
        yield f"{path}: {str(old)[:160]}, {str(new)[:160]}"


def compare(before: Path, after: Path) -> int:
    wrong = 0
    for folder in sorted(path.parent for path in before.glob("*/results.jsonl")):
        if not (after / folder.name / "results.jsonl").exists():
            print(f"{folder.name}: not run after")
            continue
        old = {outcome["id"]: outcome for outcome in read(folder)}
        new = {outcome["id"]: outcome for outcome in read(after / folder.name)}
        differ = [name for name in (*old, *(new.keys() - old.keys())) if old.get(name) != new.get(name)]
        verdicts = [outcome["verdict"] for outcome in old.values()]
        told = ", ".join(f"{verdicts.count(word):,} {word}" for word in ("pass", "warning", "error", "skip"))
        print(f"{folder.name}: {len(old):,} and {len(new):,} results ({told}), {len(differ)} differ")
        for name in differ[:5]:
            print(f"  {name}: {next(differences(old.get(name), new.get(name)))}")
        wrong += len(differ)
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("out", type=Path)
    runs.add_argument("--python", default=sys.executable, help="the interpreter whose pytest-probe runs")
    runs.add_argument("--checkout", type=Path, help="the checkout whose package that interpreter imports")
    runs.add_argument("--only", nargs="*", default=[], choices=list(RUNS), metavar="RUN", help="these runs alone")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments.out.resolve(), arguments.python, arguments.checkout, arguments.only)
        return 0
    return compare(arguments.before, arguments.after)


if __name__ == "__main__":
    sys.exit(main())
