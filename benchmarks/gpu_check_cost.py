"""What a check of a model's step takes on a GPU, with the references on the CPU and on the GPU, as a Markdown table.

    python benchmarks/gpu_check_cost.py [--device cuda] [--references cpu,cuda] [--small] [--models NAME,...]
        [--top 8] [--out DIR]

One step of each model of gpu_capture_cost.py is recorded there, with its statistics, and checked by pytest in a process
of its own, without an option but the devices. Below each row: the APIs that took longest, and what did not pass.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import pytest_probe  # noqa: E402
from benchmarks.gpu_capture_cost import MODELS  # noqa: E402


def recorded(model: str, small: bool, device: str, folder: Path) -> Path:
    torch.manual_seed(0)
    with torch.device(device):
        step = MODELS[model](small)
    step()
    with pytest_probe.capture(folder):
        step()
    return folder


def checked(dump: Path, device: str, reference: str, out: Path) -> tuple[float, list[dict[str, Any]]]:
    """Seconds of the whole run, and its results."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", f"--probe-dump={dump}"]
    command += [f"--probe-device={device}", f"--probe-reference-device={reference}", f"--probe-out={out}"]
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    took = time.perf_counter() - start
    results = (json.loads(line) for line in (out / "results.jsonl").read_text().splitlines())
    return took, [result for result in results if result.get("verdict")]


def dearest(results: list[dict[str, Any]], top: int) -> str:
    spent: Counter[str] = Counter()
    for result in results:
        spent[f"{result['api']} {result['direction']}"] += result["duration"]
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in spent.most_common(top))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--references", default="cpu,cuda", help="devices of the references, one run each")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--models", default="resnet18,llama")
    parser.add_argument("--top", type=int, default=8)
    parser.add_argument("--out", type=Path, help="keeps the dumps and results")
    given = parser.parse_args()
    print("| model | references on | items | median item | verdicts | whole run |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = given.out or Path(name)
        for model in given.models.split(","):
            dump = recorded(model, given.small, given.device, folder / model)
            for reference in given.references.split(","):
                took, results = checked(dump, given.device, reference, folder / f"{model}-{reference}")
                verdicts = Counter(result["verdict"] for result in results)
                item = 1000 * median(result["duration"] for result in results)
                print(f"| {model} | {reference} | {len(results)} | {item:.0f} ms | {dict(verdicts)} | {took:.0f} s |")
                print(f"\n{dearest(results, given.top)}", flush=True)
                for result in results:
                    if result["verdict"] in ("warning", "error"):
                        print(f"- {result['verdict']}: {result['id'].rpartition('::')[2]}: {result['reason']}")


if __name__ == "__main__":
    main()
