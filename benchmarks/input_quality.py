"""How near generated inputs come to the statistics they were made from, and what one tensor costs.

    python benchmarks/input_quality.py [--seeds N]

For each law, size and dtype: data is drawn, its statistics are taken as msprobe takes them (rounded to the dtype, which
for 16 bits is coarse), inputs are generated from those, and the statistics of the rounded inputs are compared with the
statistics of the data in float64. Deviations are the worst of all seeds: of max, min and norm relative to themselves;
of the mean relative to the mean, and (for data around zero, where that says little) relative to the root mean square.
CPU time is the median of one whole `build` of one tensor.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pytest_probe.frameworks.torch.signatures import bind
from pytest_probe.inputs import StoredTensors, build
from pytest_probe.model.dump import Call, TensorSpec
from pytest_probe.numerics.dtypes import numpy_dtype

Law = Callable[[np.random.Generator, int], np.ndarray]
NO_FILES = StoredTensors(Path("benchmark"), ())


def softmax(rng: np.random.Generator, count: int) -> np.ndarray:
    scores = np.exp(rng.standard_normal((count // 64, 64)))
    return (scores / scores.sum(axis=1, keepdims=True)).reshape(-1)


LAWS: dict[str, Law] = {
    "normal": lambda rng, count: rng.standard_normal(count),
    "relu": lambda rng, count: np.maximum(rng.standard_normal(count), 0),
    "mask": lambda rng, count: (rng.random(count) < 0.3).astype(np.float64),
    "softmax": softmax,
}


def recorded(values: np.ndarray, dtype: str) -> TensorSpec:
    """The record that a capture makes of the values: statistics in the tensor's own dtype."""
    wide = values.astype(np.float64)

    def rounded(number: float) -> float:
        with np.errstate(over="ignore"):
            return float(np.float64(number).astype(numpy_dtype(dtype)))

    norm = rounded(float(np.linalg.norm(wide)))
    return TensorSpec(dtype, values.shape, float(wide.max()), float(wide.min()), rounded(float(wide.mean())), norm)


def one_tensor(spec: TensorSpec, seed: int) -> tuple[np.ndarray, float]:
    """The generated values in float64, and the seconds of CPU that they took."""
    call = Call((spec,), {}, None, None)
    start = time.process_time()
    bound = bind("Torch.exp", call.args, call.kwargs)
    arguments = build(call, bound=bound, record="Torch.exp.0", dtype=None, seed=seed, kind="generated", files=NO_FILES)
    seconds = time.process_time() - start
    return arguments.args[0].array.astype(np.float64), seconds


def deviations(made: np.ndarray, true: np.ndarray) -> tuple[float, ...]:
    norm, size = float(np.linalg.norm(true)), true.size
    off = abs(float(made.mean() - true.mean()))
    return (
        _relative(made.max(), true.max()),
        _relative(made.min(), true.min()),
        off / abs(float(true.mean())),
        off / (norm / size**0.5),
        _relative(float(np.linalg.norm(made)), norm),
    )


def _relative(found: float, wanted: float) -> float:
    return abs(found - wanted) / abs(wanted) if wanted else abs(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    seeds = parser.parse_args().seeds
    print(f"{'law':8} {'n':>8} {'dtype':9} {'max':>8} {'min':>8} {'mean':>8} {'mean/rms':>8} {'norm':>8} {'us':>8}")
    for law, draw in LAWS.items():
        for count in (64, 512, 1984, 99_968):
            for dtype in ("float32", "bfloat16", "float16"):
                print(_row(law, draw, count, dtype, seeds if count < 10_000 else min(seeds, 5)))


def _row(law: str, draw: Law, count: int, dtype: str, seeds: int) -> str:
    found, times = [], []
    for seed in range(seeds):
        true = draw(np.random.default_rng(seed), count).astype(numpy_dtype(dtype))
        made, seconds = one_tensor(recorded(true, dtype), seed)
        found.append(deviations(made, true.astype(np.float64)))
        times.append(seconds)
    worst = " ".join(f"{max(column):8.1e}" for column in zip(*found, strict=True))
    return f"{law:8} {count:8} {dtype:9} {worst} {statistics.median(times) * 1e6:8.1f}"


if __name__ == "__main__":
    main()
