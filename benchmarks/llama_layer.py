"""One decoder layer of a 7B Llama as it is trained: what a check of each of its API calls costs.

    python benchmarks/llama_layer.py [--tokens 512] [--dtype bfloat16] [--checkout OTHER] [--top 15] [--dump DUMPS]
        [--skip-api GLOB] [--device cuda] [--reference-device cuda]

A step of an embedding, one layer (hidden 4,096, MLP 11,008, 32 heads), the last norm, the output layer (vocabulary of
32,000), cross_entropy and AdamW is recorded with its statistics. Then `pytest --probe-unique` checks the dump on the
device in a process of its own. Printed are the cases, the CPU time of the whole run and its peak memory, and for each
API the wall time of its cases and the least share of an output that was sampled. --checkout checks with the package of
another checkout, --dump what was recorded before, --skip-api all but some APIs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
HIDDEN, INNER, HEADS, WORDS = 4096, 11_008, 32, 32_000
OPTIONS = ("-q", "--tb=short", "-p", "no:cacheprovider", "-p", "pytest_probe.plugin")


def record(folder: Path, tokens: int, dtype: str, device: str) -> None:
    """Record one training step."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    from pytest_probe import PrecisionDebugger

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
            self.query, self.key, self.value, self.out = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
            self.gate, self.up = (nn.Linear(HIDDEN, INNER, bias=False) for _ in range(2))
            self.down = nn.Linear(INNER, HIDDEN, bias=False)

        def attention(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
            batch, length, _ = x.shape
            parts = (
                part(x).view(batch, length, HEADS, -1).transpose(1, 2) for part in (self.query, self.key, self.value)
            )
            query, key, value = parts
            query, key = (rotated(each, angles) for each in (query, key))
            found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            return self.out(found.transpose(1, 2).reshape(batch, length, HIDDEN))

        def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
            x = x + self.attention(self.first(x), angles)
            inner = self.second(x)
            return x + self.down(F.silu(self.gate(inner)) * self.up(inner))

    def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, -1)
        return x * angles.cos().to(x.dtype) + torch.cat([-right, left], -1) * angles.sin().to(x.dtype)

    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    words, layer, last, head = (
        part.to(device, kind)
        for part in (nn.Embedding(WORDS, HIDDEN), Layer(), nn.RMSNorm(HIDDEN), nn.Linear(HIDDEN, WORDS))
    )
    parts = nn.ModuleList([words, layer, last, head])
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-4)
    ids = torch.randint(WORDS, (1, tokens + 1)).to(device)
    places = torch.arange(tokens)[:, None] * 10_000.0 ** (-torch.arange(64) / 64)
    angles = torch.cat([places, places], -1).to(device)
    debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level="L1")
    debugger.start()
    found = head(last(layer(words(ids[:, :-1]), angles)))
    F.cross_entropy(found.flatten(0, 1), ids[:, 1:].flatten()).backward()
    optimizer.step()
    debugger.stop()
    debugger.step()


def recorded(folder: Path, tokens: int, dtype: str, device: str) -> Path:
    """The dump of a step that was recorded in a process of its own, whose memory does not count."""
    command = [sys.executable, __file__, "--record", str(folder), "--tokens", str(tokens), "--dtype", dtype]
    command += ["--device", device]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, stdout=sys.stderr)
    return folder


def check(dump: Path, out: Path, checkout: Path, options: list[str]) -> tuple[float, float]:
    """CPU seconds and GiB at the peak of a run of pytest with those options."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", *OPTIONS, f"--probe-dump={dump}", f"--probe-out={out}", "--probe-unique"]
    command += options
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, cwd=out.parent, stdout=sys.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, after.ru_maxrss / 2**20


def table(results: Path, top: int) -> None:
    """The dearest APIs."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in results.read_text().splitlines():
        result = json.loads(line)
        rows[f"{result['api']} {result['direction']}"].append(result)
    print("| API | cases | wall time | sampled | verdicts |\n|---|---|---|---|---|")
    for name, found in sorted(rows.items(), key=lambda item: -sum(each["duration"] for each in item[1]))[:top]:
        shares = [output["metrics"].get("sampled", 1.0) for each in found for output in each["outputs"]]
        verdicts = ", ".join(sorted({each["verdict"] for each in found}))
        seconds = sum(each["duration"] for each in found)
        print(f"| {name} | {len(found)} | {seconds:.1f} s | {min(shares, default=1.0):.1%} | {verdicts} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="One decoder layer of a 7B Llama")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--top", type=int, default=15)
    parser.add_argument("--dump", type=Path)
    parser.add_argument("--skip-api", action="append", default=[], metavar="GLOB")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--reference-device", default="cpu")
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        record(options.record, options.tokens, options.dtype, options.device)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dump = options.dump or recorded(folder / "dumps", options.tokens, options.dtype, options.device)
        start = time.perf_counter()
        how = [f"--probe-device={options.device}", f"--probe-reference-device={options.reference_device}"]
        how += [f"--probe-skip-api={api}" for api in options.skip_api]
        seconds, peak = check(dump.resolve(), folder / "out", options.checkout, how)
        cases = sum(1 for _ in (folder / "out/results.jsonl").open())
        print(f"{options.dtype}, {options.tokens} tokens: {cases} cases, {seconds:.0f} s of CPU, ", end="")
        print(f"{time.perf_counter() - start:.0f} s, {peak:.1f} GiB\n")
        table(folder / "out/results.jsonl", options.top)


if __name__ == "__main__":
    main()
