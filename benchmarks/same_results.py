"""Do two versions of pytest-probe give the same results? Every dump of this repository, on healthy and faulty devices.

    python benchmarks/same_results.py run OUT [--only NAME ...] [--python OTHER/bin/python | --checkout OTHER]
    python benchmarks/same_results.py compare OUT_BEFORE OUT_AFTER

`run` checks the dumps with the version that the interpreter imports, or with that of a checkout, and keeps each run's
results, CSV and JSON files, summary and terminal text below OUT; the run "paddle" checks the dumps of PaddleAPEX, where
Paddle is installed. `--only features` is a run of each feature on a few calls, in some minutes; a run that needs
another one's results makes that one first. `compare` prints how many results there are on both sides, every one that
differs in anything but its duration, and each file with its first line that differs; times and paths are left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import zip_longest
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
FEW = "--probe-dump=gpt --probe-api=Functional.* --probe-api=Tensor.matmul --probe-skip-api=*dropout*"
# The same for each feature, on a few calls. {out} has the other runs; a and b, the second with a wrong GELU, and shared
# are what PROGRAM recorded and sent, ranks what two ranks did.
FEATURES = {
    "relations": f"{FEW} --probe-relations=all",
    "sensitivity": f"{FEW} --probe-sensitivity --probe-dtype=recorded,bfloat16",
    "self": f"{FEW} --probe-standard=self --probe-device=scaled",
    "against": "--probe-dump=a --probe-against=b",
    "against-call": f"{FEW} --probe-against-call=engine.py",
    "against-framework": f"{FEW} --probe-against-framework=paddle",
    "framework": "--probe-dump=paddle/paddle-gpt --probe-framework=torch --probe-skip-api=*dropout*",
    "compile": f"{FEW} --probe-compile=aot_eager",
    "benchmarked": f"{FEW} --probe-device=other --probe-save=all",
    "benchmark": f"{FEW} --probe-device=scaled --probe-save=all --probe-benchmark={{out}}/benchmarked",
    "outputs": f"{FEW} --probe-outputs={{out}}/benchmark --probe-benchmark={{out}}/benchmarked",
    "outputs-paddleapex": "--probe-dump=paddle/gpt_random --probe-standard=paddleapex "
    "--probe-outputs=paddle/outputs/gpt/device --probe-benchmark=paddle/outputs/gpt/bench",
    "gate-update": f"{FEW} --probe-repeat=2 --probe-baseline={{out}}/baseline.jsonl --probe-baseline-update",
    "gate": f"{FEW} --probe-device=scaled --probe-baseline={{out}}/baseline.jsonl #{{out}}/gate-update",
    "stored": "--probe-dump=b --probe-device=recorded",
    "fuzz": "--probe-dump=gpt --probe-api=Functional.softmax --probe-api=Functional.gelu --probe-fuzz=quick "
    "--probe-device=scaled",
    "unique": f"{FEW} --probe-unique --probe-against-call=engine.py",
    "cached": f"{FEW} --probe-cache={{out}}/references",
    "cache": f"{FEW} --probe-cache={{out}}/references #{{out}}/cached",
    "repeat-few": f"{FEW} --probe-repeat=2 --probe-device=tail",
    "collectives": "--probe-dump=ranks --probe-device=recorded",
    "ranks": "--probe-dump=ranks --probe-ranks=2 --probe-skip-api=*randn*",
    "listen": "--probe-listen=file://{out}/work/shared",
    "asserts": "--probe-asserts=all test_asserts.py",
    "workers": f"{FEW} -n2",
}
PROGRAM = """
import sys
import torch
from pytest_probe import PrecisionDebugger

options = dict(word.split("=", 1) for word in sys.argv[1:])
if "dump_path=b" in sys.argv:
    library = torch.library.Library("aten", "IMPL")
    library.impl("gelu", lambda x, approximate="none": x * torch.sigmoid(1.8 * x), "CPU")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
debugger = PrecisionDebugger(task="tensor", **options)
debugger.start()
torch.nn.functional.softmax(model(torch.randn(5, 8)), -1).pow(2).mean().backward()
debugger.stop()
debugger.step()
"""
FILES = {
    "program.py": PROGRAM,
    "engine.py": """
import torch

def pytest_probe_register(registry):
    registry.calls["Functional.gelu"] = lambda x, *_, **__: x * (torch.erf(x / 2**0.5) + 1) * 0.5
    registry.calls["Functional.softmax"] = lambda x, *args, **kwargs: torch.softmax(x.double(), -1).to(x.dtype)
""",
    "test_asserts.py": """
import torch

def test_close():
    torch.testing.assert_close(torch.ones(9), torch.ones(9) * (1 + 1e-6))

def test_far():
    torch.testing.assert_close(torch.arange(9.0), torch.arange(9.0).flip(0))
""",
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


def record(work: Path, start: Any) -> None:
    """The dumps of the runs of features."""
    for name, text in FILES.items():
        (work / name).write_text(text)
    with tarfile.open(ROOT / "tests/data/paddleapex/gpt_outputs.txz") as archive:
        archive.extractall(work / "paddle/outputs", filter="data")
    for options in ("dump_path=a", "dump_path=b", f"online=file://{work}/shared"):
        start(["program.py", options]).wait()
    layer = str(ROOT / "tests/support/tensor_parallel.py")
    for rank in [start([layer, "ranks", str(rank), "2", str(work / "store")]) for rank in (0, 1)]:
        rank.wait()


def chosen(out: Path, patterns: list[str]) -> Iterator[str]:
    """Names of runs, each behind those whose results it needs."""
    every = {**RUNS, **FEATURES}
    patterns = [*patterns, *(FEATURES if "features" in patterns else ())]
    for name in (name for name in every if not patterns or any(fnmatchcase(name, each) for each in patterns)):
        yield from (other for other in FEATURES if re.search(rf"{{out}}/{other}\b(?!-)", str(every[name])))
        yield name


def run(out: Path, python: str, checkout: Path | None, patterns: list[str]) -> None:
    work = out / "work"
    shutil.rmtree(work, ignore_errors=True)
    for left in (out / "references", out / "baseline.jsonl"):
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
    (work / "paddle").mkdir(parents=True)
    (work / "conftest.py").write_text(CONFTEST)
    (work / "pytest.ini").write_text("[pytest]\n")
    given = {"": dumps(work), "paddle": paddle_dumps(work / "paddle")}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    if checkout is not None:
        environment["PYTHONPATH"] = str(checkout.resolve())

    def start(words: list[str], said: Any = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        return subprocess.Popen([os.path.abspath(python), *words], cwd=work, stdout=said, env=environment)

    names = list(dict.fromkeys(chosen(out, patterns)))
    if any(name in FEATURES for name in names):
        record(work, start)
    for name in names:
        results = out / name
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir()
        command = [
            "-m",
            "pytest",
            "-q",
            "--tb=no",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
            f"--probe-out={results}",
        ]
        if name in FEATURES:
            command += ["-n0", *shlex.split(FEATURES[name].format(out=out), comments=True)]
        else:
            command += ["-n2", *RUNS[name], *(f"--probe-dump={path}" for path in given.get(name, given[""]))]
        with (out / f"{name}.said").open("wb") as said:
            start(command, said).wait()
        (out / f"{name}.said").rename(results / "said.txt")
        print(f"{name}: {sum(1 for _ in read(results)):,} results", flush=True)


# What differs in each run: how long it took, and when and where it ran; settings are in run.json, times in items.json.
VOLATILE = re.compile(
    r"\b\d+(\.\d+)?(e-\d+)? ?(s|ms|seconds|min)\b( \(\d+:\d+:\d+\))?|20\d\d-\d\d-\d\d[T ][\d:+Z]*|_20\d+|(?<=proc)\d+"
)
PINNED, NOT = (".csv", ".json", ".jsonl", ".md", ".txt"), ("run.json", "items.json", "results.jsonl")


def texts(folder: Path) -> dict[str, list[str]]:
    """The lines of each file of a run, without what differs each time."""
    found = {}
    for path in folder.rglob("*"):
        if path.suffix in PINNED and path.name not in NOT and path.is_file():
            text = path.read_text().replace(str(folder.resolve().parent), "OUT")
            found[VOLATILE.sub("", str(path.relative_to(folder)))] = sorted(VOLATILE.sub("", text).splitlines())
    return found


def read(folder: Path) -> Iterator[dict[str, Any]]:
    if not (folder / "results.jsonl").exists():
        return
    with (folder / "results.jsonl").open() as file:
        for line in file:
            outcome = json.loads(re.sub(r"(?<=proc)\d+", "", line.replace(str(folder.resolve().parent), "OUT")))
            del outcome["duration"]
            outcome.pop("parts", None)
            for answer in outcome.get("answers", ()):
                answer.get("totals", {}).pop("seconds", None)
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
    for folder in sorted(path.parent for path in before.glob("*/said.txt")):
        if not (after / folder.name / "said.txt").exists():
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
        old_texts, new_texts = texts(folder), texts(after / folder.name)
        for name in sorted(old_texts.keys() | new_texts.keys()):
            pairs = zip_longest(old_texts.get(name, ()), new_texts.get(name, ()))
            for lines in [pair for pair in pairs if pair[0] != pair[1]][:1]:
                print(f"  {name}:", *(f"    {str(line)[:200]}" for line in lines), sep="\n")
                wrong += 1
        wrong += len(differ)
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("out", type=Path)
    runs.add_argument("--python", default=sys.executable, help="the interpreter whose pytest-probe runs")
    runs.add_argument("--checkout", type=Path, help="the checkout whose package that interpreter imports")
    runs.add_argument("--only", nargs="*", default=[], metavar="RUN", help="these runs alone; or features, or a glob")
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
