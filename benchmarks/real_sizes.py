"""Cases with tensors of a real model: CPU time and peak memory of a check, forward and backward.

    python benchmarks/real_sizes.py [--checkout OTHER] [--dtype bfloat16] [--row gelu] [--curve | --cores]
        [--msprobe PYTHON]

Each row is checked in a process of its own, on the CPU and on one thread. "limit" is the CPU time of the two calls that
nobody can save, the device's and the reference's in float64, and of one pass over their results; "tensors" are the
case's own in their dtype: arguments, outputs, incoming gradients and gradients. --checkout checks with the package of
another checkout. --curve checks gelu, layer_norm or softmax at 2^10 to 2^27 elements, --cores at 2^25 on one core and
on two. --msprobe PYTHON, one that has torch and mindstudio-probe 26, has its checker check the same call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ROWS = (
    *("gelu", "layer_norm", "softmax", "add", "embedding", "cross_entropy", "linear"),
    *("conv2d", "batch_norm", "attention", "adamw"),
    *("max_pool2d", "expand", "index_add", "scatter", "cumsum", "randn", "randint", "dropout"),
)
MEBI = 2**20
CURVE = (10, 12, 14, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27)


def call(row: str, dtype: str, size: int = 25) -> tuple[Any, list[Any], dict[str, Any], str]:
    """A function, its arguments, and the name that a dump has for it; some have 2^size elements."""
    import torch
    import torch.nn.functional as F

    torch.manual_seed(0)
    floating = getattr(torch, dtype)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape).to(floating)

    width = 2 ** min(12, size // 2)
    rows = 2**size // width
    if row == "gelu":
        return F.gelu, [normal(rows, width)], {}, "Functional.gelu"
    if row == "layer_norm":
        return F.layer_norm, [normal(rows, width), [width], normal(width), normal(width)], {}, "Functional.layer_norm"
    if row == "softmax":
        return F.softmax, [normal(rows, width)], {"dim": -1}, "Functional.softmax"
    if row == "add":
        return torch.add, [normal(8192, 4096), normal(8192, 4096)], {}, "Torch.add"
    if row == "embedding":
        return F.embedding, [torch.randint(128_000, (131_072,)), normal(128_000, 256)], {}, "Functional.embedding"
    if row == "cross_entropy":
        targets = torch.randint(32_768, (1024,))
        return F.cross_entropy, [normal(1024, 32_768), targets], {}, "Functional.cross_entropy"
    if row == "linear":
        return F.linear, [normal(4, 25_088), normal(4096, 25_088), normal(4096)], {}, "Functional.linear"
    if row == "conv2d":
        return F.conv2d, [normal(8, 64, 112, 112), normal(64, 64, 3, 3), None, 1, 1], {}, "Functional.conv2d"
    if row == "batch_norm":
        # Running statistics are buffers, which need no gradient.
        channels = [torch.nn.Buffer(torch.zeros(64)), torch.nn.Buffer(torch.ones(64)), normal(64), normal(64)]
        return F.batch_norm, [normal(32, 64, 112, 112), *channels, True], {}, "Functional.batch_norm"
    if row == "attention":
        heads = [normal(4, 16, 1024, 64) for _ in range(3)]
        return F.scaled_dot_product_attention, heads, {}, "Functional.scaled_dot_product_attention"
    if row == "adamw":
        return torch._fused_adamw_, *_adamw(normal), "Torch._fused_adamw_"
    if row == "max_pool2d":
        return F.max_pool2d, [normal(32, 64, 112, 112), 3, 2, 1], {}, "Functional.max_pool2d"
    if row == "expand":
        return torch.Tensor.expand, [normal(1, width), rows, width], {}, "Tensor.expand"
    if row in ("index_add", "scatter"):
        places = torch.randint(rows, (rows // 2,))
        source = normal(rows // 2, width)
        if row == "index_add":
            return torch.index_add, [normal(rows, width), 0, places, source], {}, "Torch.index_add"
        places = torch.randperm(rows)[: rows // 2, None].expand(rows // 2, width)
        return torch.scatter, [normal(rows, width), 0, places, source], {}, "Torch.scatter"
    if row == "cumsum":
        return torch.cumsum, [normal(rows, width), -1], {}, "Torch.cumsum"
    if row == "randn":
        return torch.randn, [rows, width], {"dtype": floating}, "Torch.randn"
    if row == "randint":
        return torch.randint, [0, 32_000, (rows, width)], {}, "Torch.randint"
    return F.dropout, [normal(rows, width), 0.1, True], {}, "Functional.dropout"


def _adamw(normal: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    """AdamW's step on 10^8 elements in eight tensors."""
    import torch

    sizes = [(5000, 2500)] * 8
    lists = [[normal(*size) for size in sizes] for _ in range(3)]
    squares = [normal(*size).square() for size in sizes]
    steps = [torch.tensor(3.0) for _ in sizes]
    given = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8}
    return [*lists, squares, [], steps], {**given, "amsgrad": False, "maximize": False}


def limit(row: str, dtype: str) -> dict[str, Any]:
    """CPU seconds of both calls and one pass, and bytes of the case's tensors."""
    import time

    import torch

    function, args, kwargs, _ = call(row, dtype)
    torch.set_num_threads(1)
    start, count = time.process_time(), 0
    for wide in (False, True):
        given = [_leaf(value, wide) for value in args]
        output = function(*given, **kwargs)
        if output is None or not output.requires_grad:  # what an optimizer changes, or draws
            changed = [output] if output is not None else [item for value in given[:4] for item in value]
            for tensor in changed:
                tensor.double().square().sum().item()
            count = sum(tensor.nbytes for tensor in changed) if not wide else count
            continue
        incoming = torch.ones_like(output)
        output.backward(incoming)
        leaves = [value for value in given if isinstance(value, torch.Tensor)]
        gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
        for tensor in (output, *gradients):
            tensor.detach().double().square().sum().item()
        if not wide:
            count = sum(tensor.nbytes for tensor in (output, incoming, *leaves, *gradients))
    return {"limit": time.process_time() - start, "tensors": count / MEBI}


def _leaf(value: Any, wide: bool) -> Any:
    import torch

    if isinstance(value, list):
        return [item.double() if wide else item.clone() for item in value]
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return (value.double() if wide else value.clone()).requires_grad_(not isinstance(value, torch.nn.Buffer))


def check(row: str, dtype: str, size: int, cores: int) -> dict[str, Any]:
    """CPU seconds, wall time and MiB at the peak of one check, and its verdicts."""
    import resource
    import time

    import torch

    from pytest_probe.check import Checker, RunRequest
    from pytest_probe.registry import Registry

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    torch.set_num_threads(cores)
    checker = Checker(RunRequest(device="cpu"), Registry.default())
    checker.compare(torch.abs, torch.abs, [torch.ones(4)], key="warm", backward=True)
    function, args, kwargs, api = call(row, dtype, size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start, begin = time.process_time(), time.perf_counter()
    found = checker.compare(function, function, args, kwargs, api=api, backward=True, key=row)
    seconds, wall = time.process_time() - start, time.perf_counter() - begin
    outputs = [output for verdict in found for output in verdict.outputs]
    return {
        "seconds": seconds,
        "wall": wall,
        "before": before,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "verdicts": ", ".join(sorted({verdict.verdict for verdict in found})),
        "sampled": [output.metrics["sampled"] for output in outputs if "sampled" in output.metrics],
    }


def record(row: str, dtype: str, folder: Path) -> None:
    """A dump of the call and its gradients."""
    import torch

    from pytest_probe import PrecisionDebugger

    function, args, kwargs, _ = call(row, dtype)
    given = [_leaf(value, wide=False) for value in args]
    debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level="L1")
    debugger.start()
    output = function(*given, **kwargs)
    output.backward(torch.ones_like(output))
    debugger.stop()
    debugger.step()


def msprobe(row: str, dtype: str, interpreter: Path) -> str:
    """The cells of msprobe's checker: its CPU time without that of its import, and its peak memory."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.check_speed import cost

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, str(Path(__file__).resolve()), "--record", str(folder / "dumps"), "--row", row]
        cost(folder, [*command, "--dtype", dtype], ROOT)
        (dump,) = folder.glob("dumps/step0/*/dump.json")
        checker = [str(interpreter.absolute()), str(ROOT / "benchmarks/msprobe_checker.py")]
        alone, found = cost(folder, checker), cost(folder, [*checker, str(dump), str(folder / "out")])
    return f" {found.seconds - alone.seconds:.1f} s | {found.peak:,.0f} MiB |"


def measured(what: str, row: str, dtype: str, checkout: Path, size: int = 25, cores: int = 1) -> dict[str, Any]:
    threads = {"OMP_NUM_THREADS": str(cores)}
    environment = {**os.environ, "PYTHONPATH": str(checkout), **threads, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, "--measure", what, "--row", row, "--dtype", dtype]
    command += ["--size", str(size), "--threads", str(cores)]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=checkout)
    found: dict[str, Any] = json.loads(output.stdout.splitlines()[-1])
    return found


def curve(rows: Sequence[str], dtype: str, checkout: Path) -> None:
    print(f"| {dtype} | elements | CPU | ns an element | peak beyond the inputs | bytes an element |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        for size in CURVE:
            found = measured("check", row, dtype, checkout, size)
            grown = found["peak"] - found["before"]
            print(
                f"| {row} | 2^{size} | {found['seconds']:.2f} s | {found['seconds'] * 1e9 / 2**size:,.0f} | "
                f"{grown:,.0f} MiB | {grown * MEBI / 2**size:,.0f} |",
                flush=True,
            )


def cores(rows: Sequence[str], dtype: str, checkout: Path) -> None:
    print(f"| {dtype} | one core | two cores | times as fast |\n|---|---|---|---|")
    for row in rows:
        one, two = (measured("check", row, dtype, checkout, cores=count)["wall"] for count in (1, 2))
        print(f"| {row} | {one:.1f} s | {two:.1f} s | {one / two:.2f} |", flush=True)


def table(rows: Sequence[str], dtype: str, checkout: Path, interpreter: Path | None) -> None:
    peer = " msprobe | its peak |" if interpreter else ""
    print(f"| {dtype} | limit | CPU | times the limit | peak | tensors | sampled | verdicts |{peer}")
    print("|---|---|---|---|---|---|---|---|" + "---|---|" * bool(interpreter))
    for row in rows:
        least, found = (measured(what, row, dtype, checkout) for what in ("limit", "check"))
        sampled = ", ".join(f"{share:.1%}" for share in found["sampled"]) or "-"
        print(
            f"| {row} | {least['limit']:.2f} s | {found['seconds']:.1f} s | {found['seconds'] / least['limit']:.1f} | "
            f"{found['peak']:,.0f} MiB | {least['tensors']:,.0f} MiB | {sampled} | {found['verdicts']} |"
            + (msprobe(row, dtype, interpreter) if interpreter else ""),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Cases with tensors of a real model")
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--row", action="append", choices=ROWS)
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--cores", action="store_true")
    parser.add_argument("--msprobe", type=Path, metavar="PYTHON")
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure", choices=("check", "limit"), help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=25, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        record(options.row[0], options.dtype, options.record)
    elif options.measure:
        row, dtype = options.row[0], options.dtype
        found = limit(row, dtype) if options.measure == "limit" else check(row, dtype, options.size, options.threads)
        print(json.dumps(found))
    elif options.curve:
        curve(options.row or ROWS[:3], options.dtype, options.checkout)
    elif options.cores:
        cores(options.row or ROWS[:3], options.dtype, options.checkout)
    else:
        table(options.row or ROWS, options.dtype, options.checkout, options.msprobe)


if __name__ == "__main__":
    main()
